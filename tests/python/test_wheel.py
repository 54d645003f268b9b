"""What `./dev wheel` relies on, asked of this build: octavo and its libraries use nothing newer than older.py knows how to do without."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import octavo
import pytest
from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "platform" / "wheel"))
import notes  # noqa: E402
import older  # noqa: E402
import pack  # noqa: E402
import sbom  # noqa: E402

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
        unknown = {name for name in library.newer() if not older.is_added(name) and name not in older.SAME}
        assert not unknown, f"{path}: say in older.cc how an older system does this, or do without it: {unknown}"
        library.make_older()
        library.keep_to_itself()
        changed = older.Library(library.data)
        assert changed.newer() == {}
        assert [name for _, name, _, _ in changed.symbols()] == [name for _, name, _, _ in library.symbols()]


def test_versions_are_compared_by_number():
    assert not older.is_newer("GLIBC_2.2.5") and not older.is_newer("GLIBC_2.28") and older.is_newer("GLIBC_2.29")
    assert older.is_newer("GLIBCXX_3.4.25") and not older.is_newer("GLIBCXX_3.4.9") and older.is_newer("GLIBC_ABI_DT_RELR")
    assert not older.is_newer("PROTOBUF_99.1")


def test_what_is_added_is_defined(octavo_program, tmp_path):
    """As wheel.sh links it: every function that the files take is there, made of nothing newer, and none calls itself for the system's."""
    libraries = [older.Library(pathlib.Path(path).read_bytes()) for path in carried(octavo_program)]
    script = tmp_path / "older.map"
    script.write_text(older.version_script(libraries))
    wanted = {name for library in libraries for name in library.newer() if older.is_added(name)}
    assert len(wanted) > 40 and all(f"    {name};\n" in script.read_text() for name in wanted)
    archive = subprocess.run(["c++", "-print-file-name=libstdc++.a"], check=True, capture_output=True, text=True).stdout.strip()
    steps = (SOURCE / "platform" / "wheel.sh").read_text()
    objects = re.search(r'ar x "[^"]*\)" ((?:\w+\.o ?)+)', steps)[1].split()
    subprocess.run(["ar", "x", archive, *objects], check=True, cwd=tmp_path)
    made = tmp_path / "liboctavo_older.so"
    flags = ["-std=c++23", "-O2", "-fPIC", "-ffunction-sections", "-shared", "-Wl,--gc-sections", f"-Wl,--version-script={script}"]
    subprocess.run(["c++", *flags, "-o", made, SOURCE / "platform" / "wheel" / "older.cc", *(tmp_path / name for name in objects)], check=True)
    added = older.Library(made.read_bytes())
    assert wanted <= added.defined() and {n for n in added.newer() if n not in older.SAME} == set()
    taken = {name for _, name, _, is_here in added.symbols() if not is_here}
    assert not taken & wanted
    code = (
        "import ctypes, os, sys\n"
        "it = ctypes.CDLL(sys.argv[1])\n"
        "it.__isoc23_strtol.restype = ctypes.c_long\n"
        "cpus = (ctypes.c_char * 128)()\n"
        "it.pthread_getaffinity_np.argtypes = [ctypes.c_ulong, ctypes.c_size_t, ctypes.c_void_p]\n"
        "me = ctypes.CDLL(None).pthread_self\n"
        "me.restype = ctypes.c_ulong\n"
        "assert it.pthread_getaffinity_np(me(), 128, cpus) == 0\n"
        "assert sum(bin(b).count('1') for b in bytes(cpus)) == len(os.sched_getaffinity(0))\n"
        "to = (ctypes.c_char * 144)()\n"
        "assert it.stat(sys.argv[1].encode(), to) == 0 and int.from_bytes(bytes(to)[48:56], 'little') == os.stat(sys.argv[1]).st_size\n"
        # What loads the C++ library is where that looks for its own functions first: they must not come back to it.
        "library = ctypes.CDLL('libstdc++.so.6')\n"
        "library.__cxa_allocate_exception.restype = ctypes.c_void_p\n"
        "thrown, copy = ctypes.c_void_p(library.__cxa_allocate_exception(8)), ctypes.c_void_p()\n"
        "library._ZNSt15__exception_ptr13exception_ptrC1ERKS0_(ctypes.byref(copy), ctypes.byref(thrown))\n"
        "assert copy.value == thrown.value\n"
        "library._ZNSt15__exception_ptr13exception_ptrD1Ev(ctypes.byref(copy))\n"
        "print(it.__isoc23_strtol(b'0x1f', None, 16))\n")
    assert subprocess.run([sys.executable, "-c", code, made], check=True, capture_output=True, text=True).stdout == "31\n"


def test_what_it_is_made_of_is_told(octavo_program):
    paths = [str(pathlib.Path(path).resolve()) for path in carried(octavo_program)[4:]]
    packages = {line.split(":")[0] for line in subprocess.run(["dpkg", "-S", *paths], check=True, capture_output=True, text=True).stdout.splitlines()}
    bill = sbom.bill(octavo.__version__, "0123456789", "numpy>=1.24", [*packages, "libhwy-dev"])
    found = {c["name"]: c for c in bill["components"]}
    assert found.keys() == packages | {"libhwy-dev", "numpy"} and len(packages) > 4
    for name in packages:
        assert found[name]["purl"].startswith(f"pkg:deb/debian/{name}@") and found[name]["version"][0].isdigit()
    assert found["libhwy-dev"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    (whole,) = bill["dependencies"]
    assert sorted(whole["dependsOn"]) == sorted(c["bom-ref"] for c in bill["components"]) and whole["ref"] == bill["metadata"]["component"]["bom-ref"]
    assert sbom.component("pypi:pybind11@3.1.0")["purl"] == "pkg:pypi/pybind11@3.1.0"
    with pytest.raises(SystemExit, match="the package no-such is not installed"):
        sbom.component("no-such")


def test_a_license_is_read_from_the_paragraph_of_most_files():
    assert sbom.license_of("Format: x\n\nFiles: debian/*\nLicense: GPL-2+\n\nFiles: *\nCopyright: a\nLicense: MIT\n text\n") == "MIT"
    assert sbom.license_of("This package is free.") is None


def test_notes_are_what_the_changelog_says(tmp_path):
    text = "# Changelog\n\n## [Unreleased]\n\n- open\n\n## [0.2.0] - 2026-01-01\n\n### Added\n- second\n\n## [0.1.0]\n- first\n"
    assert notes.section(text, "0.2.0") == "### Added\n- second" and notes.section(text, "0.1.0") == "- first" and notes.section(text, "9") == "- open"
    with pytest.raises(SystemExit, match="no section of 9 and nothing under Unreleased"):
        notes.section("# Changelog\n\n## [Unreleased]\n", "9")
    (tmp_path / "octavo-0.2.0-x.whl").write_bytes(b"abc")
    said = notes.notes("0.2.0", "0123456789", [tmp_path / "octavo-0.2.0-x.whl"], text)
    assert "- second" in said and "- open" not in said
    assert "| octavo-0.2.0-x.whl | 3 | `ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad` |" in said


def test_one_wheel_is_for_every_python_whose_module_lies_in_it(tmp_path):
    folder = tmp_path / "files"
    (folder / "octavo" / "bin").mkdir(parents=True)
    info = folder / "octavo-1.2.dist-info"
    for name in ("notices", "sboms", info.relative_to(tmp_path)):
        (tmp_path / name).mkdir(parents=True)
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp313-cp313-linux_x86_64\n")
    (folder / "octavo" / "bin" / "octavo").write_text("program")
    for python in (313, 39, 310, 311, 314):
        (folder / "octavo" / f"_octavo.cpython-{python}-x86_64-linux-gnu.so").write_text(f"{python}")
    path = pack.pack(folder, tmp_path / "notices", tmp_path / "sboms", tmp_path / "out")
    assert path.name == "octavo-1.2-cp39.cp310.cp311.cp313.cp314-cp39.cp310.cp311.cp313.cp314-linux_x86_64.whl"
    with zipfile.ZipFile(path) as archive:
        modules = {name.split("-")[1] for name in archive.namelist() if "cpython" in name}
        tags = re.findall(r"^Tag: cp(\d+)-cp\1-linux_x86_64$", archive.read("octavo-1.2.dist-info/WHEEL").decode(), re.MULTILINE)
        assert tags == ["39", "310", "311", "313", "314"] and modules == set(tags)
        assert archive.read("octavo/bin/octavo") == b"program"


def test_the_library_of_a_wheel_exports_what_objects_call(tmp_path):
    """As one_library.cmake links it: of an archive what is called, each name once, and a name that nothing defines fails the link."""
    (tmp_path / "room.cc").write_text("namespace octavo::ir { int Called() { return 7; } int Other() { return 8; } }\nint Foreign() { return 9; }\n")
    (tmp_path / "unused.cc").write_text("namespace octavo::ir { int Unused() { return 8; } }\n")
    call = "namespace octavo::ir { int Called(); %s }\nint Foreign();\nint main() { return octavo::ir::Called() + %s; }\n"
    (tmp_path / "face.cc").write_text(call % ("", "Foreign()"))
    (tmp_path / "face2.cc").write_text(call % ("int Own(); ", "octavo::ir::Own()"))
    (tmp_path / "own.cc").write_text("namespace octavo::ir { int Own() { return 1; } }\n")
    (tmp_path / "wrong.cc").write_text(call % ("int Missing(); ", "octavo::ir::Missing()"))
    for name in ("room", "unused", "face", "face2", "own", "wrong"):
        subprocess.run(["c++", "-fPIC", "-c", f"{name}.cc"], check=True, cwd=tmp_path)
    subprocess.run(["ar", "rc", "rooms.a", "room.o", "unused.o"], check=True, cwd=tmp_path)

    def link(*objects):
        script = ["cmake", "-DNM=nm", "-DEXPORTS=exports.ld", "-P", SOURCE / "platform" / "cmake" / "exports.cmake", "--", *objects]
        subprocess.run(script, check=True, cwd=tmp_path)
        return subprocess.run(["c++", "-shared", "-o", "lib.so", "exports.ld", "rooms.a"], cwd=tmp_path, capture_output=True, text=True)

    assert link("face.o", "face2.o", "own.o").returncode == 0
    library = older.Library((tmp_path / "lib.so").read_bytes())
    assert {name for name in library.defined() if name.startswith("_Z")} == {"_ZN6octavo2ir6CalledEv"}
    assert b"Unused" not in library.data
    failed = link("face.o", "wrong.o")
    assert failed.returncode != 0 and "no room of octavo defines _ZN6octavo2ir7MissingEv" in failed.stderr


def own_interpreters(home, then="own_interpreters", **settings):
    script = f'. "{SOURCE}/platform/wheel/headers.sh"; {then}'
    done = subprocess.run(["bash", "-euc", script], env={"HOME": str(home), "PATH": os.environ["PATH"], **settings}, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_interpreters_of_pyenv_and_uv_are_found(tmp_path):
    """The newest of pyenv that has headers, else of uv, of the Pythons that no Debian has headers of."""
    made = [".pyenv/versions/3.10.9", ".pyenv/versions/3.10.13", ".pyenv/versions/3.11.7", ".local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu", ".pyenv/versions/3.12.1"]
    for place in (*made, ".pyenv/versions/3.10.99"):
        version = re.search(r"3\.\d+", place)[0]
        (tmp_path / place / "bin").mkdir(parents=True)
        (tmp_path / place / "bin" / "python").write_text("")
        (tmp_path / place / "bin" / "python").chmod(0o755)
        if place in made:  # the other one has no headers
            (tmp_path / place / "include" / f"python{version}").mkdir(parents=True)
            (tmp_path / place / "include" / f"python{version}" / "Python.h").write_text("")
    found = own_interpreters(tmp_path)
    assert found == [f"{tmp_path}/{place}/bin/python" for place in (made[1], made[4])]
    shown = 'with_own_interpreters; echo "$OCTAVO_BIND"; echo $OCTAVO_PYTHONS'
    assert own_interpreters(tmp_path, shown, OCTAVO_BIND="/a") == [f"/a:{tmp_path}/{made[1]}:{tmp_path}/{made[4]}", *found]
    assert own_interpreters(tmp_path, shown, OCTAVO_BIND="/a", OCTAVO_PYTHONS="") == ["/a"]
    assert own_interpreters(tmp_path / "nobody") == []
