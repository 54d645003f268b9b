"""The text side of ./dev demo: what is read, how it is split, and how it becomes batches. Run by ctest."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "demo"))

import texts  # noqa: E402

LONG = "This library does something that takes many words to describe, so many that the text is long enough to be kept"
STATUS = f"""Package: libalpha1
Status: install ok installed
Description: alpha library
 {LONG}: alpha.
 .
 Second paragraph.

Package: libalpha-dev
Description: alpha library, development files
 {LONG}: alpha.
 .
 Second paragraph.

Package: beta
Description: beta tool
 {LONG}, which is beta.
Homepage: http://example.org/

Package: short
Description: too short
 Few words.
"""


class Texts(unittest.TestCase):

    def packages(self):
        with tempfile.TemporaryDirectory() as folder:
            status = pathlib.Path(folder) / "status"
            status.write_text(STATUS)
            return texts.read_packages([status, pathlib.Path(folder) / "missing"])

    def test_reads_descriptions_and_leaves_out_siblings_and_short_ones(self):
        self.assertEqual([p[0] for p in self.packages()], ["beta", "libalpha-dev"])
        self.assertEqual(self.packages()[1][1:], ("alpha library, development files", f"{LONG}: alpha. Second paragraph."))

    def test_split_is_stable_and_disjoint(self):
        packages = [(f"p{i}", "s", "l") for i in range(20)]
        calibration, rest = texts.split(packages, 5)
        self.assertEqual((calibration, rest), texts.split(list(reversed(packages)), 5))
        self.assertEqual(sorted(calibration + rest), sorted(packages))
        self.assertEqual(len(calibration), 5)

    def test_batches_are_sorted_padded_and_complete(self):
        tokens = [[7] * (1 + (i * 5) % 11) for i in range(70)]
        batches = texts.batches(tokens, ["input_ids", "attention_mask"])
        self.assertEqual([len(p) for p, _ in batches], [32, 32, 6])
        self.assertEqual(sorted(i for p, _ in batches for i in p), list(range(70)))
        for positions, inputs in batches:
            self.assertEqual(set(inputs), {"input_ids", "attention_mask"})
            lengths = [len(tokens[i]) for i in positions]
            self.assertEqual(inputs["attention_mask"].sum(1).tolist(), lengths)
            self.assertEqual(inputs["input_ids"].shape, (len(positions), max(lengths)))
            self.assertTrue((inputs["input_ids"] == 7 * inputs["attention_mask"]).all())

    def test_word_hash_stays_in_the_vocabulary(self):
        ids = texts.WordHash(99)("the same word the " + "x " * 100, 48)
        self.assertLessEqual(len(ids), 48)
        self.assertEqual(ids[1], ids[4])
        self.assertTrue(all(0 < i < 99 for i in ids))


if __name__ == "__main__":
    unittest.main(verbosity=1)
