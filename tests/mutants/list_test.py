"""The list of mutants fits the sources and the tests, so that it cannot rot. Run by ctest with the build folder."""

import collections
import pathlib
import subprocess
import sys
import unittest

import mutants

BUILD = pathlib.Path(sys.argv.pop(1))


class List(unittest.TestCase):

    def check(self, wrong, rule):
        self.assertFalse(wrong, rule + ":\n  " + "\n  ".join(wrong))

    def test_names(self):
        counts = collections.Counter(m.name for m in mutants.load())
        self.assertGreater(len(counts), 0)
        self.check([name for name, count in counts.items() if count > 1], "names that stand twice")
        self.check([m.name for m in mutants.load() if len(m.killed_by.split()) != 2], "killed_by is 'PROGRAM FILTER'")

    def test_before_stands_once(self):
        wrong = []
        for m in mutants.load():
            path = mutants.ROOT / m.file
            count = path.read_text().count(m.before) if path.is_file() else 0
            if count != 1 or m.before == m.after:
                wrong.append(f"{m.name}: stands {count} times in {m.file}")
        self.check(wrong, "'before' must stand in its file once: write the mutant anew for what stands there now")

    def test_the_tests_exist(self):
        wrong = []
        for killer in sorted({m.killed_by for m in mutants.load()}):
            program, which = killer.split()
            found = list(BUILD.glob(f"tests/*/{program}"))
            listed = subprocess.run([found[0], "--gtest_list_tests", f"--gtest_filter={which}"], cwd=mutants.ROOT,
                                    capture_output=True, text=True).stdout if found else ""
            if "\n  " not in listed:
                wrong.append(killer)
        self.check(wrong, "killed_by names no test")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
