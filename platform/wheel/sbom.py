"""What a wheel is made of, as CycloneDX 1.6 JSON: octavo, the Debian packages whose libraries it carries or whose headers were compiled in, and what pip
installs beside it. Wheels have it in DIST-INFO/sboms (PEP 770).

usage: sbom.py VERSION COMMIT NUMPY PACKAGE...     NUMPY: what pip is asked for, "numpy>=1.24"; PACKAGE: installed Debian packages, or what came from PyPI,
pypi:pybind11@3.1.0; prints the JSON
"""

import json
import pathlib
import re
import subprocess
import sys


def installed(package):
    """(version, architecture, source) of a Debian package."""
    asked = ["dpkg-query", "--show", "--showformat=${Version}\t${Architecture}\t${source:Package}\t${db:Status-Status}\n", package]
    lines = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    for line in lines:
        version, architecture, source, status = line.split("\t")
        if status == "installed":
            return version, architecture, source
    sys.exit(f"octavo: the package {package} is not installed, so its version is not known; name the packages that the wheel was built with")


def license_of(text):
    """The short name that a copyright file in Debian's format gives most files, or None."""
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(Files|License): *(.+)$", paragraph, re.MULTILINE))
        if fields.get("Files") == "*" and "License" in fields:
            return fields["License"]
    return None


def component(package):
    if package.startswith("pypi:"):
        name, version = package.removeprefix("pypi:").split("@")
        return {"type": "library", "bom-ref": f"pkg:pypi/{name}@{version}", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    version, architecture, source = installed(package)
    purl = f"pkg:deb/debian/{package}@{version.replace('+', '%2B')}?arch={architecture}"
    found = {"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl}
    name = license_of(pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8"))
    if name:
        found["licenses"] = [{"license": {"name": name}}]
    found["properties"] = [{"name": "octavo:source-package", "value": source}, {"name": "octavo:copyright", "value": f"licenses/third_party/{source}.txt"}]
    return found


def bill(version, commit, numpy, packages):
    own = {"type": "library", "bom-ref": f"pkg:pypi/octavo@{version}", "name": "octavo", "version": version, "purl": f"pkg:pypi/octavo@{version}",
           "licenses": [{"license": {"id": "Apache-2.0"}}], "properties": [{"name": "octavo:commit", "value": commit}]}
    beside = {"type": "library", "bom-ref": "pkg:pypi/numpy", "name": "numpy", "purl": "pkg:pypi/numpy", "scope": "required",
              "properties": [{"name": "octavo:requirement", "value": numpy}]}
    components = [component(package) for package in sorted(set(packages))]
    needs = sorted([c["bom-ref"] for c in components] + [beside["bom-ref"]])
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": own}, "components": [*components, beside],
            "dependencies": [{"ref": own["bom-ref"], "dependsOn": needs}]}


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    print(json.dumps(bill(*sys.argv[1:4], sys.argv[4:]), indent=1))
