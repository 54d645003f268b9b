"""A wheel as a folder and back, with the licences and the list of what it carries: as many wheels as the Pythons whose modules lie in it take.

usage: pack.py unpack WHEEL FOLDER
       pack.py pack FOLDER NOTICES SBOMS OUT      prints the new wheels' paths, one a line; auditwheel writes their lists of hashes
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


# A module is 0.4 MB, and people wait for each MB: what two Pythons need stays below 20.
PYTHONS_OF_A_WHEEL = 2


def python_of(path):
    found = re.fullmatch(r"_octavo\.cpython-(\d+)-.*\.so", path.name)
    return found and found[1]


def groups(pythons):
    """313, 311 -> [[311, 313]]; the oldest together, so that the newest have the smallest file."""
    pythons = sorted(pythons, key=int)
    return [pythons[i:i + PYTHONS_OF_A_WHEEL] for i in range(0, len(pythons), PYTHONS_OF_A_WHEEL)]


def pack(folder, notices, sboms, out):
    (info,) = folder.glob("octavo-*.dist-info")
    shutil.copytree(notices, info / "licenses" / "third_party")
    shutil.copytree(sboms, info / "sboms")
    out.mkdir()
    return [pack_for(group, folder, info, out) for group in groups(filter(None, map(python_of, folder.glob("octavo/*.so"))))]


def pack_for(pythons, folder, info, out):
    tags = [f"cp{python}-cp{python}-linux_x86_64" for python in pythons]
    lines = [line for line in (info / "WHEEL").read_text().splitlines() if line and not line.startswith("Tag:")]
    (info / "WHEEL").write_text("\n".join(lines + [f"Tag: {tag}" for tag in tags]) + "\n")
    names = ".".join(f"cp{python}" for python in pythons)
    path = out / f"{info.name.removesuffix('.dist-info')}-{names}-{names}-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if python_of(file) in (None, *pythons):
                archive.write(file, file.relative_to(folder))
    return path


def main():
    command, *paths = sys.argv[1:]
    done = {"unpack": unpack, "pack": pack}[command](*map(pathlib.Path, paths))
    print(*done or [], sep="\n", end="\n" if done else "")


if __name__ == "__main__":
    main()
