"""The notes of a release out of CHANGELOG.md: the section of its version, or the open one where it has none yet; then how to install, and hashes.

usage: notes.py VERSION COMMIT FILE...     prints Markdown; FILE: what is released
"""

import hashlib
import pathlib
import re
import sys

CHANGELOG = pathlib.Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def section(text, version):
    """What the changelog says of the version."""
    parts = re.split(r"^## \[(.+?)\].*$", text, flags=re.MULTILINE)
    sections = {name: body.strip() for name, body in zip(parts[1::2], parts[2::2])}
    said = sections.get(version) or sections.get("Unreleased")
    if not said:
        sys.exit(f"octavo: CHANGELOG.md has no section of {version} and nothing under Unreleased; say there what is new")
    return said


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def notes(version, commit, files, text):
    wheel = next(path.name for path in files if path.suffix == ".whl")
    lines = [f"# octavo {version}", "", f"Of commit {commit}. `pip install {wheel}` in a virtual environment (`python3 -m venv`), then `octavo --help`.", "", section(text, version), "", "### Files", "",
             "| file | bytes | SHA-256 |", "|---|---:|---|"]
    return "\n".join([*lines, *(f"| {path.name} | {path.stat().st_size} | `{sha256(path)}` |" for path in files)]) + "\n"


if __name__ == "__main__":
    print(notes(sys.argv[1], sys.argv[2], [pathlib.Path(name) for name in sys.argv[3:]], CHANGELOG.read_text(encoding="utf-8")), end="")
