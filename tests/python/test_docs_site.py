"""What ./dev docs gives MkDocs: every document, links between them alone, and the help of the program."""

import json
import os
import pathlib
import re
import sys

from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "platform" / "docs"))
import stage  # noqa: E402


def pages_of(entries):
    for entry in entries:
        for value in entry.values():
            yield from pages_of(value) if isinstance(value, list) else [value]


def test_every_document_is_a_page_of_the_menu(tmp_path):
    texts = stage.stage(tmp_path, [sys.executable, "-m", "octavo"])
    listed = list(pages_of(json.loads((tmp_path / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == sorted(texts) and listed[0] == "README.md" and "docs/recipes.md" in listed and "kernels/DESIGN.md" in listed
    program = (tmp_path / "docs" / "reference" / "program.md").read_text()
    assert "## optimize\n" in program and "--keep-float" in program and "## completion\n" in program
    assert all(f"## {name}\n" in program for name in ("generate", "perplexity", "tune")) and "--calib-text" in program and "--against" in program
    python, cpp = ((tmp_path / "docs" / "reference" / name).read_text() for name in ("python.md", "cpp.md"))
    assert "def optimize(" in python and "## octavo.transformers\n" in python and "def export_and_optimize(" in python
    assert "int main(" in cpp and "find_package(octavo" in cpp
    links = 0
    for page in texts:
        path = tmp_path / "docs" / page
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for words, target in re.findall(r"\[([^\]\n]*)\]\(([^()\s]+)\)", text):
            if not re.match(r"[a-z]+:|#", target) and not words.startswith("`["):
                assert os.path.isfile(path.parent / target.partition("#")[0]) or f"`[{words}" in text, f"{page}: {target}"
                links += 1
    assert links > 50 and (tmp_path / "docs" / "docs" / "block.svg").is_file()
    for drawing in ("way", "codes", "file"):
        assert (tmp_path / "docs" / "docs" / f"concepts-{drawing}.svg").is_file()
    menu = {name: list(pages_of([entry])) for entry in json.loads((tmp_path / "mkdocs.yml").read_text())["nav"] for name in entry}
    assert {"docs/concepts.md", "docs/recipes.md", "docs/accuracy.md", "docs/faq.md"} <= set(menu["Start"]) and "SECURITY.md" in menu["About"]
    assert "docs/comparison.md" in menu["Benchmarks"]


def test_words_of_drawings_lie_within_their_boxes():
    """By letters of 0.54 of the font's size, and no text is beyond the drawing."""
    import xml.etree.ElementTree as tree

    for path in sorted((SOURCE / "docs").glob("*.svg")):
        root = tree.parse(path).getroot()
        assert root.find("{*}title").text and root.find("{*}desc").text
        width = float(root.get("width"))
        for text in root.iter("{*}text"):
            x, wide = float(text.get("x")), 0.54 * float(text.get("font-size", 13)) * len(text.text or "")
            left = {"start": x, "middle": x - wide / 2, "end": x - wide}[text.get("text-anchor", "start")]
            assert left >= 0 and left + wide <= width, f"{path.name}: {text.text}"


def test_links_elsewhere_become_paths():
    pages = {"docs/a.md", "docs/lab/README.md", "README.md"}
    for given, want in {
        "[b](a.md#part)": "[b](a.md#part)", "[b](../README.md)": "[b](../README.md)", "[b](https://x.y)": "[b](https://x.y)", "[b](#part)": "[b](#part)",
        "[lab](lab/)": "[lab](lab/README.md)", "[b](../version.h)": "b (`version.h`)", "[`version.h`](../version.h)": "`version.h`",
        "`[b](../version.h)`": "`[b](../version.h)`", "```\n[b](../version.h)\n```": "```\n[b](../version.h)\n```",
    }.items():
        assert stage.linked(given, "docs/a.md", pages) == (want, set())
    assert stage.linked("![b](block.svg)", "docs/a.md", pages) == ("![b](block.svg)", {"docs/block.svg"})


def test_a_title_is_the_first_heading():
    assert stage.title("text\n# `a` and *b*\n## c\n", "p.md") == "a and b" and stage.title("text", "p.md") == "p.md"
    assert pathlib.Path(SOURCE, "platform", "requirements-docs.txt").is_file()
