"""The comparison of the table in docs/families.md with what the zoo test saw, on tables that are wrong in one place."""

import pathlib
import unittest

import support_table

ROW = {"family": "bert", "quantized": False, "failed": "", "cores": 2, "cores_fused": 2, "groups": 2, "groups_fused": 2, "int8_cores": 2,
       "sqnr_db": 36.44}
SEEN = support_table.table([ROW, dict(ROW, family="gpt2", sqnr_db=32.06), dict(ROW, family="gpt2", quantized=True)])


class Differences(unittest.TestCase):

    def found(self, old, new):
        self.assertIn(old, SEEN)
        return support_table.differences(SEEN.replace(old, new), SEEN)

    def test_what_is_true_passes(self):
        self.assertEqual(support_table.differences(SEEN, SEEN), [])
        self.assertEqual(self.found("| 36.4 dB", "| 37.4 dB"), [])
        self.assertEqual(self.found("| 36.4 dB", "| 35.4 dB"), [])

    def test_what_is_not_true_is_named(self):
        bert = "| bert | 1 | 1 | 2 of 2 | 2 of 2 | 2 of 2 | 36.4 dB |"
        for wrong in ("| bert | 2 | 1 | 2 of 2 | 2 of 2 | 2 of 2 | 36.4 dB |", "| bert | 1 | 0 | 2 of 2 | 2 of 2 | 2 of 2 | 36.4 dB |",
                      "| bert | 1 | 1 | 1 of 2 | 2 of 2 | 2 of 2 | 36.4 dB |", "| bert | 1 | 1 | 2 of 2 | 2 of 3 | 2 of 2 | 36.4 dB |",
                      "| bert | 1 | 1 | 2 of 2 | 2 of 2 | - | 36.4 dB |", "| bert | 1 | 1 | 2 of 2 | 2 of 2 | 2 of 2 | 37.5 dB |",
                      "| bert | 1 | 1 | 2 of 2 | 2 of 2 | 2 of 2 | 35.3 dB |", "| bert | 1 | 1 | 2 of 2 | 2 of 2 | 2 of 2 | - |"):
            found = self.found(bert, wrong)
            self.assertEqual(len(found), 1, wrong)
            self.assertIn("bert: the page says", found[0])
        self.assertEqual(self.found("| gpt2 |", "| gpt3 |"), ["gpt2: the page does not have it", "gpt3: the zoo does not have it"])
        self.assertEqual(len(self.found("| **all** | 3 |", "| **all** | 4 |")), 1)
        self.assertEqual(len(self.found("int8 outputs, worst", "int8")), 1)

    def test_page_has_the_marks(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs/families.md").read_text()
        self.assertIn("| **all** | 412 |", support_table.split_page(page)[1])
        with self.assertRaises(SystemExit):
            support_table.split_page(page.replace(support_table.END, ""))


if __name__ == "__main__":
    unittest.main()
