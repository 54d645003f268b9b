"""Who may include whom (HACKING.md), file lengths, flags and words that have no place in the tree. Run by ctest.

Every rule is checked on the files that git tracks or would track; without git, on all files.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = (".cc", ".h", ".def", ".inc")

# room -> rooms whose headers it may include besides its own. kernels/catalog.h is the one door from passes to kernels;
# arch.h is the value that a query of the catalog names.
NUMERIC = "quant/numeric"
ALLOWED = {
    NUMERIC: set(),
    "ir": {NUMERIC},
    "quant": {NUMERIC, "ir"},
    "kernels": {NUMERIC},
    "passes": {NUMERIC, "ir", "quant", "kernels/catalog.h", "kernels/arch/arch.h", "kernels/gemm/gemm_f32.h", "kernels/gemm/gram.h"},
    "runtime": {NUMERIC, "ir", "quant", "kernels"},
    "integrations": {NUMERIC, "ir", "kernels", "runtime", "api"},
    "api": {NUMERIC, "ir", "quant", "kernels", "passes", "runtime"},
    "cli": {NUMERIC, "ir", "quant", "kernels", "passes", "runtime", "api", "integrations"},
    "python_bindings": {NUMERIC, "ir", "quant", "kernels", "passes", "runtime", "api", "integrations"},
    "fuzz": {NUMERIC, "ir", "quant", "kernels", "passes", "runtime", "api"},
    "benchmarks": {NUMERIC, "ir", "quant", "kernels", "passes", "runtime", "api"},
    "tests": {NUMERIC, "ir", "quant", "kernels", "passes", "runtime", "api", "cli", "fuzz", "benchmarks/layers.h"},
}
MAX_LINES = 500
MAX_LINES_OF_A_RULE = 70
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]')
FLAG = re.compile(r"-m(arch|tune|avx\w*|amx\w*|sse\w*|fma|bmi\w*)\b|/arch:")
# Places on one person's machine, files beside the repository, and work that is not done. Split, so that this file does not match itself.
WORDS = re.compile("|".join(["/ro" + "ot/", "/ho" + "me/[a-z]", "/wo" + "rk/", r"\bsha" + "red/", r"\b(kernels|graphs)\.m" + r"d \d",
                             r"\bTO" + "DO\\b", r"\bFIX" + "ME\\b"]))
FOLDERS_NOT_WANTED = {"src", "include", "utils", "common"}
OF_DOCS = (".md", ".svg")


def project_files():
    try:
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
        return sorted(ROOT / name for name in listed if name and (ROOT / name).is_file())
    except (OSError, subprocess.CalledProcessError):
        return sorted(p for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts)


FILES = project_files()


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def room_of(name):
    return NUMERIC if name.startswith(NUMERIC + "/") else name.split("/")[0]


def includes():
    for path in FILES:
        name = name_of(path)
        if path.suffix not in SOURCES or room_of(name) not in ALLOWED or "/example/" in name:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                yield name, number, match[1], match[2]


class Layout(unittest.TestCase):

    def check(self, wrong, rule):
        self.assertFalse(wrong, rule + ":\n  " + "\n  ".join(wrong))

    def test_there_is_something_to_check(self):
        self.assertGreater(sum(1 for _ in includes()), 50)

    def test_include_direction(self):
        wrong = []
        for name, number, _, target in includes():
            if not target.startswith("octavo/"):
                continue
            target = target.removeprefix("octavo/")
            room, other = room_of(name), room_of(target)
            if target == "version.h":  # of every room
                continue
            if other != room and other not in ALLOWED[room] and target not in ALLOWED[room]:
                wrong.append(f"{name}:{number} includes {target}; {room} may include {sorted(ALLOWED[room])}")
        self.check(wrong, "include direction (HACKING.md)")

    def test_one_spelling(self):
        wrong = []
        for name, number, quote, target in includes():
            ours = (ROOT / target.removeprefix("octavo/")).is_file()
            beside = (ROOT / name).parent.joinpath(target).is_file() and not name.startswith(("tests/", "benchmarks/"))
            if quote == '"' and not target.startswith("octavo/") and (ours or beside):
                wrong.append(f'{name}:{number} "{target}": spell it "octavo/..."')
            if target.startswith("octavo/") and not ours:
                wrong.append(f"{name}:{number} {target} does not exist")
        self.check(wrong, 'our headers are spelled "octavo/ROOM/FILE.h" (a test may name the helper beside it by its name alone)')

    def test_vector_code_stays_in_kernels(self):
        wrong = [f"{name}:{number} {target}" for name, number, _, target in includes()
                 if target.endswith("-inl.h") and target.startswith("octavo/") and room_of(name) not in ("kernels", "tests")]
        self.check(wrong, "*-inl.h is included only inside kernels/")

    def test_third_parties_stay_in_their_room(self):
        only = {"onnx/": ("ir/onnx", "fuzz", "tests"), "google/protobuf": ("ir/onnx", "fuzz", "tests"), "CLI/": ("cli", "fuzz"),
                "pybind11/": ("python_bindings",), "hwy/": ("kernels", "benchmarks", "tests"), "zlib.h": ("ir/npz",), "xxhash.h": ("runtime",),
                "onnxruntime": ("integrations/onnxruntime",)}
        wrong = [f"{name}:{number} {target}" for name, number, _, target in includes()
                 for prefix, rooms in only.items() if target.startswith(prefix) and not name.startswith(rooms)]
        self.check(wrong, "a third party's headers are seen by one room")

    def test_no_isa_flags(self):
        wrong = [f"{name_of(p)}:{n}" for p in FILES if p.suffix == ".cmake" or p.name in ("CMakeLists.txt", "CMakePresets.json")
                 for n, line in enumerate(p.read_text().splitlines(), 1) if FLAG.search(line)]
        self.check(wrong, "ISA code is chosen at run time: no -march or -m flags in build files")

    def test_no_machine_paths_and_no_leftovers(self):
        text = (".cc", ".h", ".def", ".inc", ".py", ".pyi", ".sh", ".md", ".txt", ".cmake", ".json", "")
        wrong = [f"{name_of(p)}:{n} {line.strip()[:80]}" for p in FILES
                 if p.suffix in text and not name_of(p).startswith("tests/data/") and p.name != "LICENSE"
                 for n, line in enumerate(p.read_text(errors="replace").splitlines(), 1) if WORDS.search(line)]
        self.check(wrong, "words that have no place here")

    def test_file_names(self):
        wrong = [name_of(p) for p in FILES if p.suffix in (".cc", ".h", ".py")
                 and not re.fullmatch(r"(__)?[a-z0-9_]+(__|-inl)?\.(cc|h|py)", p.name)]
        wrong += [name_of(p) for p in FILES if p.relative_to(ROOT).parts[0] in FOLDERS_NOT_WANTED]
        self.check(wrong, "files are snake_case; no src/, include/, utils/, common/")

    def test_docs_are_text_and_pictures(self):
        wrong = [name_of(p) for p in FILES if room_of(name_of(p)) == "docs" and p.suffix not in OF_DOCS]
        self.check(wrong, "docs/ has pages and pictures")

    def test_links_lead_somewhere(self):
        wrong = [f"{name_of(p)}: {target}" for p in FILES if p.suffix == ".md"
                 for target in LINK.findall(re.sub(r"(?ms)^```.*?^```", "", p.read_text())) if not (p.parent / target).exists()]
        self.check(wrong, "links of documents name files")

    def test_paths_in_backticks_exist(self):
        """Of this tree, from its root or from the document's folder; what a document says of a day (lab notes, the changelog) stays as it was."""
        names = {name_of(p) for p in FILES}
        rooms = {name.split("/")[0] for name in names if "/" in name}
        names |= {str(parent) for name in names for parent in pathlib.PurePosixPath(name).parents}
        wrong = []
        for p in FILES:
            name = pathlib.PurePosixPath(name_of(p))
            if p.suffix != ".md" or name.is_relative_to("docs/lab") or name.name == "CHANGELOG.md":
                continue
            for path in re.findall(r"`([a-z0-9_]+/[a-z0-9_./-]*)`", p.read_text()):
                path = path.rstrip("/")
                if path.split("/")[0] in rooms and not {path, str(name.parent / path)} & names:
                    wrong.append(f"{name}: {path}")
        self.check(wrong, "a path in backticks is there")

    def test_every_test_is_run(self):
        def named(path):
            words = path.stem.removesuffix("_test").split("_")
            for build in (path.parent / "CMakeLists.txt", path.parent.parent / "CMakeLists.txt"):
                text = build.read_text() if build.exists() else ""
                for i in range(len(words)):  # by itself, or as one of the names behind a common beginning
                    begin, rest = "".join(w + "_" for w in words[:i]), "_".join(words[i:])
                    if (i == 0 or begin + "${name}" in text) and re.search(rf"\b{rest}(_test)?\b", text):
                        return True
            return False

        wrong = [name_of(p) for p in FILES if p.name.endswith(("_test.cc", "_test.py")) and not named(p)]
        self.check(wrong, "a test that no build file names is never run")

    def test_include_guards(self):
        wrong = []
        for path in FILES:
            name = name_of(path)
            if path.suffix != ".h" or name.endswith("-inl.h") or room_of(name) not in ALLOWED:
                continue
            guard = "OCTAVO_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper() + "_"
            if f"#ifndef {guard}\n#define {guard}\n" not in path.read_text():
                wrong.append(f"{name}: expected {guard}")
        self.check(wrong, "include guards are named after the path (two paths lead to a header: no #pragma once)")

    def test_rules_are_short_and_tested(self):
        """A file of passes/fusions that begins with what stands before and after is one rule (or a pass of one rewrite); what several share, or what
        looks at more than the pattern, has a file of its own."""
        files = [p for p in FILES if name_of(p).startswith("passes/fusions/") and p.suffix == ".cc"]
        rules = [p for p in files if re.search(r"^// Before: |\bRuleBuilder r\(", p.read_text(), re.M)]
        self.assertGreater(len(rules), 20)
        wrong = [f"{name_of(p)}: {count} lines" for p in rules if (count := len(p.read_text().splitlines())) > MAX_LINES_OF_A_RULE]
        wrong += [f"{name_of(p)}: does not begin with '// Before: '" for p in rules if not p.read_text().startswith("// Before: ")]
        wrong += [f"{name_of(p)}: there is no tests/passes/fusions/{p.stem}_test.cc" for p in rules
                  if not (ROOT / "tests/passes/fusions" / f"{p.stem}_test.cc").is_file()]
        self.check(wrong, f"a rule says before and after, has at most {MAX_LINES_OF_A_RULE} lines, and a test of its own (HACKING.md)")

    def test_help_of_a_command_prints_its_lines_and_starts_nothing(self):
        words = re.search(r"^  (demo \|.*)\) exec", (ROOT / "dev").read_text(), re.M)[1].split(" | ") + ["clean"]
        with tempfile.TemporaryDirectory() as cache:
            for word in set(words) - {"octavo", "fuzz"}:  # which have a help of their own
                run = subprocess.run(["bash", str(ROOT / "dev"), word, "--help"], capture_output=True, text=True, check=True,
                                     timeout=60, env=os.environ | {"OCTAVO_CACHE": cache})
                self.assertTrue(run.stdout.startswith(f"  {word} "), word)
                self.assertEqual([run.stderr, os.listdir(cache)], ["", []], word)

    def test_file_length(self):
        lengths = {name_of(p): len(p.read_text(errors="replace").splitlines()) for p in FILES
                   if p.suffix in (".cc", ".h", ".py") or p.name == "dev"}
        rooms = collections.defaultdict(lambda: [0, 0])
        for name, count in lengths.items():
            rooms[room_of(name)][0] += 1
            rooms[room_of(name)][1] += count
        for room, (files, count) in sorted(rooms.items()):
            print(f"{room:16} {files:4} files {count:7} lines")
        self.check([f"{name}: {count} lines" for name, count in lengths.items() if count > MAX_LINES],
                   f"files have at most {MAX_LINES} lines")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
