"""What `./dev wheel` relies on, asked of this build: octavo and its libraries use nothing newer than older.py knows how to do without."""

import pathlib
import subprocess
import sys

import octavo
from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "platform" / "wheel"))
import older  # noqa: E402

# What every system has, by the tag of the wheel.
OF_THE_SYSTEM = ("libc.so", "libm.so", "libz.so", "libgcc_s.so", "libstdc++.so", "ld-linux")


def carried(octavo_program):
    own = [octavo_program, octavo._octavo.__file__, octavo.onnxruntime_library(), octavo.ep_library()]
    listed = subprocess.run(["ldd", *own], check=True, capture_output=True, text=True).stdout
    needed = {line.split()[2] for line in listed.splitlines() if " => /" in line}
    return own + sorted(path for path in needed if not pathlib.Path(path).name.startswith(OF_THE_SYSTEM))


def test_a_wheel_can_do_without_what_is_newer(octavo_program):
    files = carried(octavo_program)
    assert len(files) > 8, files
    for path in files:
        library = older.Library(pathlib.Path(path).read_bytes())
        assert library.newer().keys() <= older.ADDED | older.SAME, f"{path}: say in older.cc how an older system does this, or do without it"
        library.make_older()
        library.keep_to_itself()
        changed = older.Library(library.data)
        assert changed.newer() == {}
        assert [name for _, name, _, _ in changed.symbols()] == [name for _, name, _, _ in library.symbols()]


def test_versions_are_compared_by_number():
    assert not older.is_newer("GLIBC_2.2.5") and not older.is_newer("GLIBC_2.34") and older.is_newer("GLIBC_2.38")
    assert older.is_newer("GLIBCXX_3.4.30") and not older.is_newer("GLIBCXX_3.4.9") and older.is_newer("GLIBC_ABI_DT_RELR")
    assert not older.is_newer("PROTOBUF_99.1")


def test_what_is_added_is_defined():
    text = (SOURCE / "platform" / "wheel" / "older.map").read_text()
    exported = [word.rstrip(";") for word in text.split() if word.startswith("_")]
    assert all(any(name == pattern or pattern.endswith("*") and name.startswith(pattern[:-1]) for pattern in exported) for name in older.ADDED)
