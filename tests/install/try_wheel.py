"""A wheel is read and tried out: nothing in it asks for more than its tag promises, it is small, and it works where it was installed.

usage: PYTHON try_wheel.py WHEEL     with any Python of 3.10 or later that has venv and numpy, on any Linux that the tag allows; without network
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "float" / "bert.ts17.sdpa.onnx"
MAX_BYTES = 20_000_000


def audit(wheel):
    """What no system of the tag lacks: a missing function would be noticed only when it is called."""
    sys.path.insert(0, str(ROOT / "platform" / "wheel"))
    import older

    assert wheel.stat().st_size < MAX_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes; {MAX_BYTES} is the limit"
    asked, added = set(), set()
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    libraries = {name: older.Library(data) for name, data in files.items() if data[:4] == b"\x7fELF"}
    for name, library in libraries.items():
        assert not library.newer(), f"{name} asks for {library.newer()}"
        asked |= {version for _, version, _ in library.needs() if version.startswith("GLIBC_")}
        if "liboctavo_older" in name:
            added |= {symbol for _, symbol, _, is_here in library.symbols() if is_here}
    taken = {symbol for library in libraries.values() for _, symbol, _, is_here in library.symbols() if not is_here and older.is_added(symbol)}
    assert taken <= added, f"older.cc does not define {taken - added}"
    (bill,) = [json.loads(data) for name, data in files.items() if name.endswith(".dist-info/sboms/octavo.cdx.json")]
    licences = {pathlib.PurePath(name).name for name in files if "/licenses/third_party/" in name}
    for component in bill["components"]:  # whose licence is in it, where it is carried
        texts = [pathlib.PurePath(p["value"]).name for p in component.get("properties", []) if p["name"] == "octavo:copyright"]
        assert component["purl"].startswith("pkg:pypi/") or (texts and licences.issuperset(texts)), component
    newest = max(tuple(map(int, version.partition("_")[2].split("."))) for version in asked)
    assert newest <= older.LIMITS["GLIBC"], newest
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(libraries)} programs and libraries, at most glibc {newest[0]}.{newest[1]}", flush=True)


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def use():
    """What a person does. Runs in the environment that the wheel was installed in."""
    import numpy as np

    import octavo

    assert pathlib.Path(octavo.__file__).is_relative_to(sys.prefix), octavo.__file__
    version = run(sys.executable, "-m", "octavo", "--version").strip()
    assert version.startswith(f"octavo {octavo.__version__}"), version
    assert run(pathlib.Path(sys.prefix) / "bin" / "octavo", "--version").strip() == version
    with tempfile.TemporaryDirectory() as folder:
        int8, report = pathlib.Path(folder) / "int8.onnx", pathlib.Path(folder) / "report.html"
        run(sys.executable, "-m", "octavo", "optimize", MODEL, "-o", int8, "--calib", "random:8", "--report", report)
        assert report.stat().st_size > 1000
        batch = {"input_ids": np.arange(14).reshape(2, 7), "attention_mask": np.ones((2, 7), np.int64)}
        outputs = [octavo.Session(str(path), threads=2).run(batch)[0] for path in (MODEL, int8)]
        cosine = np.sum(outputs[0] * outputs[1]) / np.linalg.norm(outputs[0]) / np.linalg.norm(outputs[1])
        assert cosine > 0.99, f"int8 and float outputs have a cosine of {cosine}"
    try:
        octavo.Session(str(report))
        raise AssertionError("a report was read as a model")
    except (OSError, ValueError, RuntimeError) as error:  # thrown in C++, caught in Python
        assert str(error)
    try:
        octavo.Session(MODEL, threads="two")
        raise AssertionError("a word was taken for a number of threads")
    except TypeError as error:  # made of what this Python's binding says of its functions
        assert str(error) == "Session(): threads takes a whole number, not str", error
    for library in (octavo.onnxruntime_library(), octavo.ep_library()):
        ctypes.CDLL(library, mode=os.RTLD_NOW)  # every function that it needs is there
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    print(f"works: {version}, Python {sys.version.split()[0]}, numpy {np.__version__}, {libc}; cosine of int8 and float {cosine:.5f}")


def main():
    if sys.argv[1] == "use":
        return use()
    wheel = pathlib.Path(sys.argv[1]).resolve()
    audit(wheel)
    if f"cp{sys.version_info[0]}{sys.version_info[1]}" not in wheel.name.split("-")[2].split("."):
        return print(f"{wheel.name} is for other Pythons than {sys.version.split()[0]}: it was read alone")
    with tempfile.TemporaryDirectory() as folder:
        # numpy is the system's, or from what PIP_FIND_LINKS names.
        run(sys.executable, "-m", "venv", "--system-site-packages", folder)
        run(pathlib.Path(folder) / "bin" / "pip", "install", "--disable-pip-version-check", "--no-index", wheel)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_", "OCTAVO"))}
        subprocess.run([pathlib.Path(folder) / "bin" / "python", pathlib.Path(__file__).resolve(), "use"], cwd=folder, env=clean, check=True)


if __name__ == "__main__":
    main()
