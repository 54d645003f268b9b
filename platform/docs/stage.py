"""The documents of the sources as a folder for MkDocs, which makes a site of them: every page at its own path, with what the program and the module say of themselves.

usage: stage.py FOLDER [PROGRAM ...]     PROGRAM: what runs octavo (python3 -m octavo has all commands), whose --help becomes a page; without it the site has none
"""

import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The order of the menu; documents that no entry names stand under "Insides".
MENU = [
    ("Start", ["README.md", "docs/concepts.md", "docs/recipes.md", "docs/accuracy.md", "docs/families.md", "docs/embeddings.md", "docs/faq.md"]),
    ("Reference", ["reference/program.md", "reference/python.md", "reference/cpp.md", "cli/JSON.md", "docs/environment.md", "docs/onnxruntime_ops.md"]),
    ("Extending", ["docs/extending.md", "HACKING.md"]),
    ("Benchmarks", ["docs/comparison.md", "docs/compare.md", "benchmarks/results/*.md", "docs/lab/*.md"]),
    ("About", ["CHANGELOG.md", "SECURITY.md"]),
]
CONFIG = {
    "site_name": "octavo", "use_directory_urls": False,
    # Nothing is fetched where a page is read.
    "theme": {"name": "material", "font": False, "features": ["navigation.indexes", "navigation.top", "content.code.copy"],
              "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default"}, {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}]},
    "plugins": ["search"], "markdown_extensions": ["tables", "fenced_code", "attr_list", "md_in_html", "toc"],
    "validation": {"nav": {"omitted_files": "warn", "not_found": "warn"},
                   "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"}},
}
# A block of code, a link (whose words may be code), or code in a line.
_PART = re.compile(r"```.*?```|(!?)\[([^\]\n]*)\]\(([^()\s]+)\)|`[^`\n]*`", re.DOTALL)


def documents():
    """Paths of all documents, as the sources have them."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], check=True, capture_output=True, text=True)
    return sorted(path for path in listed.stdout.splitlines() if not path.startswith("tests/"))


def linked(text, page, pages):
    """The text of a page whose links lead to pages of the site alone, and the pictures that it shows; what else it names, it names by path."""
    pictures = set()

    def change(link):
        mark, words, target = link.groups()
        if target is None or re.match(r"[a-z]+:|#", target):
            return link[0]
        path, _, _ = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if path in pages:
            return link[0]
        if (ROOT / path / "README.md").is_file() and f"{path}/README.md" in pages:
            return f"{mark}[{words}]({target.rstrip('/')}/README.md)"
        if mark:
            pictures.add(path)
            return link[0]
        return words if words.strip("`") == path else f"{words} (`{path}`)"

    return _PART.sub(change, text), pictures


def reference(program):
    """What the program and the module say of themselves, as pages."""
    stubs = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "python_bindings" / "octavo").glob("*.pyi"))}
    modules = {"octavo": stubs.pop("__init__"), **{f"octavo.{name}": stub for name, stub in stubs.items()}}
    pages = {"reference/python.md": "# Python\n\nThe modules, as their stub files declare them.\n" +
             "".join(f"\n## {name}\n\n```python\n{stub}```\n" for name, stub in modules.items())}
    examples = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.cc"))}
    pages["reference/cpp.md"] = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8").replace("](", "](../docs/") + "".join(
        f"\n## {name}\n\n```cpp\n{code}```\n" for name, code in examples.items())
    if program:
        say = lambda *words: subprocess.run([*program, *words, "--help"], check=True, capture_output=True, text=True).stdout
        text = say()
        commands = re.findall(r"^  ([a-z]+)  ", text.partition("SUBCOMMANDS:")[2] or text.partition("Subcommands:")[2], re.MULTILINE)
        assert commands, "the program's help lists no commands"
        parts = [f"# The program\n\n```text\n{text}```\n", *(f"## {command}\n\n```text\n{say(command)}```\n" for command in commands)]
        pages["reference/program.md"] = "\n".join(parts)
    return pages


def title(text, page):
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else page


def menu(texts):
    """[{"Start": [{title: page}]}]: MENU, and the rest."""
    left, entries = dict.fromkeys(texts), []
    for name, patterns in MENU:
        pages = [page for pattern in patterns for page in sorted(left) if fnmatch.fnmatch(page, pattern) and page.count("/") == pattern.count("/")]
        for page in pages:
            left.pop(page, None)
        entries.append({name: [{title(texts[page], page): page} for page in dict.fromkeys(pages)]})
    entries.insert(-1, {"Insides": [{title(texts[page], page): page} for page in left]})
    return [entry for entry in entries if next(iter(entry.values()))]


def stage(folder, program=()):
    folder = pathlib.Path(folder)
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in documents() if page != "docs/cpp.md"} | reference(program)
    for page, text in texts.items():
        changed, pictures = linked(text, page, texts)
        for path, content in [(page, changed.encode()), *((picture, (ROOT / picture).read_bytes()) for picture in pictures)]:
            target = folder / "docs" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    (folder / "mkdocs.yml").write_text(json.dumps({**CONFIG, "nav": menu(texts)}, indent=1), encoding="utf-8")  # JSON is YAML
    return texts


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    stage(sys.argv[1], sys.argv[2:])
