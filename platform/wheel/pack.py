"""A wheel as a folder and back, with the licences and the list of what it carries, for each Python whose module lies in it.

usage: pack.py unpack WHEEL FOLDER
       pack.py pack FOLDER NOTICES SBOMS OUT      prints the new wheel's path; auditwheel writes its list of hashes
"""

import pathlib
import re
import shutil
import sys
import zipfile


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for path in folder.glob("octavo/bin/*"):
        path.chmod(0o755)


def pack(folder, notices, sboms, out):
    pythons = sorted(re.search(r"cpython-(\d+)-", path.name)[1] for path in folder.glob("octavo/_octavo.cpython-*.so"))
    tags = [f"cp{python}-cp{python}-linux_x86_64" for python in pythons]
    info, = folder.glob("octavo-*.dist-info")
    lines = [line for line in (info / "WHEEL").read_text().splitlines() if line and not line.startswith("Tag:")]
    (info / "WHEEL").write_text("\n".join(lines + [f"Tag: {tag}" for tag in tags]) + "\n")
    shutil.copytree(notices, info / "licenses" / "third_party")
    shutil.copytree(sboms, info / "sboms")
    out.mkdir()
    names = ".".join(f"cp{python}" for python in pythons)
    path = out / f"{info.name.removesuffix('.dist-info')}-{names}-{names}-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def main():
    command, *paths = sys.argv[1:]
    done = {"unpack": unpack, "pack": pack}[command](*map(pathlib.Path, paths))
    if done:
        print(done)


if __name__ == "__main__":
    main()
