"""Writes libraries to link against in place of this system's C library: its symbols, at versions that glibc 2.28 has.

A symbol that is newer is not there, so what needs it does not link; newer.c has the few that octavo and its libraries ask for.
The libraries are empty: they tell the linker names and versions, nothing else.

usage: glibc_stubs.py FOLDER
"""

import pathlib
import re
import subprocess
import sys

NEWEST = (2, 28)
SYSTEM = pathlib.Path("/lib/x86_64-linux-gnu")
LIBRARIES = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2")
# Parts of libc.so.6 since glibc 2.34, libraries of their own before.
EMPTY = ("libpthread.so.0", "libdl.so.2", "librt.so.1")
SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+(\d+|0x[0-9a-f]+) (\w+)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+(\w+) ([\w.$]+)@{1,2}GLIBC_([\d.]+)$")


def symbols(library):
    """{name: (version, kind, bytes)}, the newest that is old enough."""
    found = {}
    text = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        match = SYMBOL.match(line)
        if not match or match[3] == "UND" or match[2] not in ("FUNC", "IFUNC", "OBJECT"):
            continue
        version = tuple(int(part) for part in match[5].split("."))
        if version <= NEWEST and (match[4] not in found or version > found[match[4]][0]):
            found[match[4]] = (version, match[2], int(match[1], 0))
    return found


def link(folder, name, assembly, versions):
    source, script = folder / f"{name}.s", folder / f"{name}.map"
    source.write_text(assembly + '\n.section .note.GNU-stack,"",@progbits\n')
    script.write_text(versions)
    subprocess.run(["cc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}", "-o", folder / name, source], check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        by_version, text, data = {}, [".text"], [".data"]
        for symbol, (version, kind, size) in sorted(symbols(SYSTEM / name).items()):
            by_version.setdefault(version, []).append(symbol)
            if kind == "OBJECT":
                data.append(f".globl {symbol}\n.type {symbol},@object\n.size {symbol},{size}\n{symbol}: .zero {max(size, 1)}")
            else:
                text.append(f".globl {symbol}\n.type {symbol},@function\n{symbol}: ret")
        versions = [f"GLIBC_{'.'.join(map(str, version))} {{ global: {'; '.join(names)}; }};" for version, names in sorted(by_version.items())]
        versions[0] = versions[0].removesuffix("};") + "local: *; };"
        link(folder, name, "\n".join(text + data), "\n".join(versions))
    for name in EMPTY:
        link(folder, name, ".text", "{ local: *; };")
    # What -lc and -lm find. libc_nonshared.a has the few functions of the C library that are linked in everywhere.
    (folder / "libc.so").write_text("GROUP ( libc.so.6 /usr/lib/x86_64-linux-gnu/libc_nonshared.a AS_NEEDED ( ld-linux-x86-64.so.2 ) )\n")
    for name in ("libm.so.6", *EMPTY):
        plain = folder / (name.split(".so")[0] + ".so")
        plain.unlink(missing_ok=True)
        plain.symlink_to(name)


if __name__ == "__main__":
    main()
