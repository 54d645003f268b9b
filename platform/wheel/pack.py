"""A wheel as a folder and back, with the licences and the list of what it carries, for the Pythons whose modules lie in it.

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


def pythons_of(folder):
    """The Pythons whose modules lie in it, oldest first: 311, 313."""
    found = (re.fullmatch(r"_octavo\.cpython-(\d+)-.*\.so", path.name) for path in folder.glob("octavo/*.so"))
    return sorted((one[1] for one in found if one), key=int)


def pack(folder, notices, sboms, out):
    (info,) = folder.glob("octavo-*.dist-info")
    shutil.copytree(notices, info / "licenses" / "third_party")
    shutil.copytree(sboms, info / "sboms")
    pythons = pythons_of(folder)
    lines = [line for line in (info / "WHEEL").read_text().splitlines() if line and not line.startswith("Tag:")]
    (info / "WHEEL").write_text("\n".join(lines + [f"Tag: cp{python}-cp{python}-linux_x86_64" for python in pythons]) + "\n")
    names = ".".join(f"cp{python}" for python in pythons)
    out.mkdir()
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
