"""How many files somebody edits to add a thing: HACKING.md's headings say a number, and this counts on a thing that is there. Run by ctest.

A file counts where the code, without its comments, has the word. `functions.h` is nothing but the comment that says what ops mean, so it counts
by that.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ("ir", "quant", "kernels", "passes", "runtime", "api", "integrations", "cli", "python_bindings")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
BY_COMMENT = {"ir/functions.h"}
HEADING = re.compile(r"^### (.+?): (\d+) places", re.M)

# What HACKING.md calls it -> the word that stands in each of its places, and the folders of what is counted elsewhere.
EXAMPLES = {
    "An ONNX op": (r"\bk?EyeLike\b", ("ir/attrs.def",)),
    "An op of our own": (r"\bk?NormQuant\b", ("passes/fusions/",)),  # the rules that make it
    "A fusion rule": (r"\bNormColumns\b|fusions/norm_columns\.cc", ()),
    "An activation of a product's epilogue": (r"\bquick_gelu\b", ()),
    "A calibrator": (r"\bkPercentile\b|\"percentile\"", ()),
    "An option of optimize": (r"\bquantize_kv_cache\b", ()),
    "A command": (r"\bAddExplain\b|\bexplain\.cc\b|^#+ .*\bexplain\b", ("api/",)),
}


def sources():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".cc", ".h", ".def", ".md") or path.name == "CMakeLists.txt":
                yield path


def places(word, elsewhere):
    found = []
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(elsewhere) or (path.suffix == ".md" and name != "cli/JSON.md"):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".cc", ".h", ".def") and name not in BY_COMMENT:
            text = COMMENT.sub("", text)
        if re.search(word, text, re.M):
            found.append(name)
    return found


class Places(unittest.TestCase):
    def test_a_thing_takes_as_many_files_as_hacking_says(self):
        said = {name: int(n) for name, n in HEADING.findall((ROOT / "HACKING.md").read_text(encoding="utf-8"))}
        for name, (word, elsewhere) in EXAMPLES.items():
            with self.subTest(name):
                found = places(word, elsewhere)
                self.assertEqual(len(found), said.pop(name), found)
        # Kernels differ in how many instruction sets they have files for.
        self.assertEqual(list(said), ["A kernel"])


if __name__ == "__main__":
    unittest.main()
