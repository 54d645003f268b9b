"""Packs wheels: one for each Python whose module lies in the folder, all with the same library, program and texts.

usage: pack.py STAGE NOTICES TAG OUT
  STAGE    a folder `octavo` with liboctavo-VERSION.so, libs/liboctavo_onnxruntime.so, bin/octavo_wheel_program and _octavo.cpython-*.so, stripped
  NOTICES  copyright files of what is compiled in, named PACKAGE=VERSION.txt, and the licences that they name
  TAG      manylinux_2_28_x86_64
"""

import base64
import hashlib
import json
import pathlib
import re
import sys
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATE = (1980, 1, 1, 0, 0, 0)  # the same files make the same wheel


def project():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    version = data["tool"]["scikit-build"]["metadata"]["version"]
    data["project"]["version"] = re.search(version["regex"], (ROOT / version["input"]).read_text())["value"]
    return data["project"]


def metadata(about):
    lines = ["Metadata-Version: 2.4", f"Name: {about['name']}", f"Version: {about['version']}", f"Summary: {about['description']}",
             f"License-Expression: {about['license']}", "License-File: LICENSE", f"Requires-Python: {about['requires-python']}"]
    lines += [f"Requires-Dist: {need}" for need in about["dependencies"]]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", (ROOT / about["readme"]).read_text()])


def bill_of_materials(about, notices):
    """CycloneDX: what is compiled in, in the versions of Debian's packages."""
    parts = [notice.stem.split("=", 1) for notice in sorted(notices.glob("*=*.txt"))]
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "library", "name": about["name"], "version": about["version"],
                                   "licenses": [{"license": {"id": about["license"]}}]}},
        "components": [{"type": "library", "name": name, "version": version, "purl": f"pkg:deb/debian/{name}@{version}?arch=amd64",
                        "scope": "required"} for name, version in parts],
    }, indent=1)


def files_of(stage, notices, about, python, tag):
    """(name in the wheel, bytes, may be executed)"""
    package = ROOT / "python_bindings" / "octavo"
    files = [(f"octavo/{path.name}", path.read_bytes(), False) for path in sorted(package.iterdir()) if path.suffix in (".py", ".pyi", ".typed")]
    parts = [*sorted(stage.glob("lib*.so")), *stage.glob(f"_octavo.cpython-{python}-*.so")]
    files += [(f"octavo/{path.name}", path.read_bytes(), True) for path in parts]
    files += [(f"octavo/libs/{path.name}", path.read_bytes(), True) for path in sorted((stage / "libs").glob("*.so"))]
    files.append(("octavo/bin/octavo", (stage / "bin" / "octavo_wheel_program").read_bytes(), True))
    info = f"{about['name']}-{about['version']}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: octavo\nRoot-Is-Purelib: false\nTag: cp{python}-cp{python}-{tag}\n"
    scripts = "".join(f"{name} = {target}\n" for name, target in about["scripts"].items())
    texts = {"METADATA": metadata(about), "WHEEL": wheel, "entry_points.txt": f"[console_scripts]\n{scripts}",
             "licenses/LICENSE": (ROOT / "LICENSE").read_text(), "sboms/octavo.cdx.json": bill_of_materials(about, notices)}
    texts |= {f"licenses/third_party/{notice.name}": notice.read_text(errors="replace") for notice in sorted(notices.iterdir())}
    return info, files + [(f"{info}/{name}", text.encode(), False) for name, text in texts.items()]


def pack(stage, notices, about, python, tag, out):
    info, files = files_of(stage, notices, about, python, tag)
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for name, data, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), False))
    path = out / f"{about['name']}-{about['version']}-cp{python}-cp{python}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data, executable in files:
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data)
    return path


def main():
    stage, notices, tag, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
    out.mkdir(parents=True, exist_ok=True)
    pythons = sorted(re.search(r"cpython-(\d+)-", path.name)[1] for path in stage.glob("_octavo.cpython-*.so"))
    if not pythons:
        sys.exit(f"octavo: no module of any Python lies in {stage}")
    for python in pythons:
        path = pack(stage, notices, project(), python, tag, out)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
