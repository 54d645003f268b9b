"""Every sentence by which octavo refuses to fuse or to quantize something is read by a test: a sentence that nobody reads is wrong before long.

Sentences are string literals of refusals in passes/ and in the kernels' catalog. A test reads one where a string of its own has the whole of it, with
something in each {}, or three words of it in a row.
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRING = r'"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*'
# Illegal("..."), Refuse(m, Kind::kShape, "..."), ir::Fail("..."), context.Leave("pass", n, "..."), why = "...", return "...".
REFUSAL = re.compile(
    r"(?:\b(?:Illegal|Shape|NoKernel|NotWorth|Refuse|Fail|Leave)\(|\bwhy = |\breason = |\breturn )"
    r"(?:m, Kind::\w+, |\"\w+\", [^\"]*?)?(?:std::format\()?\s*(" + STRING + ")"
)
NO_REFUSALS = re.compile(
    # faults of octavo's own, which undo the pass (passes/guard.h); what a report says of things that did fuse
    # what a picture shows, and what stands before the sentence of a plugin's own
    r"one of \(|^plugin \{\}: |made a cycle|in pass \{\}|scale \{\}, zero point|it would give|undone too often"
)


def text_of(literals):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def sentences():
    files = sorted(ROOT.glob("passes/**/*.cc")) + sorted(ROOT.glob("passes/**/*.h")) + [ROOT / "kernels/catalog.cc"]
    found = {}
    for path in files:
        source = re.sub(r"//[^\n]*", "", path.read_text())
        for match in REFUSAL.finditer(source):
            sentence = text_of(match.group(1))
            if len(sentence.split()) >= 3 and not NO_REFUSALS.search(sentence):
                found.setdefault(sentence, path.relative_to(ROOT))
    return found


def strings_of_tests():
    strings = []
    for path in sorted(ROOT.glob("tests/**/*")):
        if path.suffix == ".cc":
            strings += [text_of(m) for m in re.findall(STRING, re.sub(r"^\s*//[^\n]*", "", path.read_text(), flags=re.M))]
        elif path.suffix == ".py" and path.name != pathlib.Path(__file__).name:
            strings.append(path.read_text().replace('\\"', '"'))
    return "\n".join(strings)


def reads(sentence, tests):
    """Whether the strings of tests have the sentence."""
    parts = re.split(r"\{[^}]*\}", sentence)
    for part in parts:
        words = part.split()
        if any(" ".join(words[i : i + 3]) in tests for i in range(len(words) - 2)):
            return True
    return re.search("[^\n]+?".join(map(re.escape, parts)), tests) is not None


class RefusedSentences(unittest.TestCase):
    def test_every_sentence_is_read(self):
        found, tests = sentences(), strings_of_tests()
        self.assertGreater(len(found), 100)
        unread = [f"{path}: {sentence}" for sentence, path in found.items() if not reads(sentence, tests)]
        self.assertEqual(unread, [], "\nno test reads:\n" + "\n".join(unread))

    def test_what_counts_as_read(self):
        self.assertTrue(reads("{} is {}, not {}", "the scale is 3, not 4"))
        self.assertTrue(reads("the weight has rank {}, not 2", "has: the weight has"))
        self.assertFalse(reads("{} is {}, not {}", "the scale is 3"))
        self.assertFalse(reads("one operand is a constant", "a constant"))


if __name__ == "__main__":
    sys.exit(unittest.main())
