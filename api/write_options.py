"""Writes what the table of options (api/options.cc) says into the stub file and into docs/recipes.md. Needs the built module:

    ./dev shell python3 api/write_options.py            writes both
    ./dev shell python3 api/write_options.py --check    fails where one says something else (tests/python/test_options.py)
"""

import pathlib
import re
import sys
import textwrap

from octavo import _options

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPES = {"flag": "bool", "count": "int", "number": "float | None", "name": "str", "names": "Sequence[str]"}
NAME = "api/write_options.py"


def type_of(name):
    if name in _options.OWN:
        return _options.OWN[name][0]
    option = _options.OPTIONS[name]
    allowed = ", ".join(f'"{a}"' for a in option["allowed"])
    return f"Literal[{allowed}]" if allowed else TYPES[option["type"]]


def stub():
    """The function with its docstring."""
    lines = ["def optimize(", "    model: _Model,"]
    by_name = False
    for name, parameter in _options.SIGNATURE.parameters.items():
        if name == "model":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            lines.append("    *,")
            by_name = True
        value = f'"{parameter.default}"' if isinstance(parameter.default, str) else repr(parameter.default)
        lines.append(f"    {name}: {type_of(name)} = {value},")
    lines.append(") -> Result:")
    first, *rest = _options.doc().splitlines()
    lines.append(f'    """{first}')
    for line in rest:
        lines += textwrap.wrap(line, 140, initial_indent="    ", subsequent_indent="    ") or [""]
    return [*lines, '    """']


def table():
    rows = ["| option | effect | recipes | it acts in | when |", "|---|---|---|---|---|"]
    for option in _options.OPTIONS.values():
        if not option["when"]:
            continue  # --recipe, which is the page itself
        word = f" {option['word'] or 'N'}" if option["type"] in ("count", "number", "names") else " NAME" if option["allowed"] else ""
        names = f", one of {', '.join(option['allowed'])}" if option["allowed"] else ""
        acts = ", ".join(f"`{a}`" for a in option["acts"]) or "the whole call"
        cells = [f"`{option['flag']}{word}`", option["what"] + names, option["recipes"].removeprefix("recipes ").removeprefix("recipe ") or "all", acts,
                 option["when"]]
        rows.append("| " + " | ".join(flags(c) for c in cells) + " |")
    return rows


def flags(text):
    """Names in braces as the program writes them, and what Markdown would read as its own."""
    return re.sub(r"{(\w+)}", lambda m: f"`{_options.FLAGS[m[1]]}`", text).replace(" * and ? ", " `*` and `?` ")


def with_block(text, begin, end, lines):
    head, rest = text.split(begin + "\n")
    return head + "\n".join([begin, *lines, end]) + rest.split(end)[1]


def pages():
    """Path and new text of both."""
    for path, begin, end, lines in [
        (ROOT / "python_bindings/octavo/__init__.pyi", f"# begin: {NAME}", f"# end: {NAME}", stub()),
        (ROOT / "docs/recipes.md", f"<!-- begin: {NAME} -->", f"<!-- end: {NAME} -->", table()),
    ]:
        yield path, with_block(path.read_text(), begin, end, lines)


def main(check):
    wrong = []
    for path, text in pages():
        if path.read_text() == text:
            continue
        wrong.append(str(path.relative_to(ROOT)))
        if not check:
            path.write_text(text)
    if check and wrong:
        sys.exit(f"{' and '.join(wrong)} do not say what the table of options says: ./dev shell python3 {NAME}")


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
