"""platform/skips.py counts what GoogleTest, ctest and pytest skipped, and with CI set refuses what no line of the list expects."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOOGLETEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" disabled="1"><testsuite name="All/Gemm">
  <testcase name="EveryTail/avx2" status="run" result="completed" time="0" classname="All/Gemm" />
  <testcase name="EveryTail/amx" status="run" result="skipped" time="0" classname="All/Gemm">
    <skipped message="tests/kernels/testing.h:70&#x0A;amx: not run on this CPU (Zen 3)&#x0A;"><![CDATA[more]]></skipped>
  </testcase>
  <testcase name="DISABLED_Old" status="notrun" result="suppressed" time="0" classname="All/Gemm" />
</testsuite></testsuites>"""
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite tests="2" skipped="1"><testcase name="gemm_test" classname="gemm_test" time="1" status="run"><system-out>x</system-out></testcase>
<testcase name="slow" classname="slow" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=4"/></testcase></testsuite>"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest"><testcase classname="tests.python.test_cli" name="test_help" time="0.1" />
<testcase classname="" name="tests.python.test_onnxruntime" time="0"><skipped message="collection skipped">('test_onnxruntime.py', 15, 'Skipped: no ONNX Runtime here: install it')</skipped></testcase>
<testcase classname="tests.python.test_cli" name="test_b" time="0"><skipped type="pytest.skip" message="no data">t.py:1: no data</skipped></testcase>
</testsuite></testsuites>"""
LIST = """# expected
All/*.*/*  not run on this CPU
tests.python.test_onnxruntime*  no ONNX Runtime here
"""


class Skips(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, listed, ci, **reports):
        list_file = self.folder / "skips.txt"
        list_file.write_text(listed)
        for name, text in reports.items():
            (self.folder / f"{name}.xml").write_text(text)
        environment = {k: v for k, v in os.environ.items() if k != "CI"} | ({"CI": "true"} if ci else {})
        return subprocess.run([sys.executable, ROOT / "platform/skips.py", list_file, self.folder], env=environment, capture_output=True, text=True)

    def test_every_kind_is_counted_and_named(self):
        done = self.run_script(LIST, False, a=GOOGLETEST, b=CTEST, c=PYTEST)
        self.assertEqual((done.returncode, done.stdout), (0, "5\n"))
        for words in ("skipped 1: amx: not run on this CPU (Zen 3) (All/Gemm.EveryTail/amx)", "disabled (All/Gemm.DISABLED_Old)",
                      "SKIP_RETURN_CODE=4 (slow.slow)", "skipped 1: no ONNX Runtime here: install it (tests.python.test_onnxruntime)",
                      "no data (tests.python.test_cli.test_b)"):
            self.assertIn(words, done.stderr)

    def test_ci_takes_what_is_listed(self):
        expected = LIST + "*.DISABLED_Old  disabled\nslow.*  SKIP_RETURN_CODE\ntests.python.test_cli.test_b  no data\n"
        self.assertEqual(self.run_script(expected, True, a=GOOGLETEST, b=CTEST, c=PYTEST).returncode, 0)

    def test_ci_refuses_another_test_and_another_reason(self):
        done = self.run_script(LIST, True, a=GOOGLETEST, c=PYTEST)
        self.assertEqual((done.returncode, done.stdout), (1, "4\n"))
        self.assertIn("All/Gemm.DISABLED_Old was skipped and is not in", done.stderr)
        self.assertNotIn("EveryTail/amx was skipped and", done.stderr)
        self.assertIn("test_b was skipped and is not in", done.stderr)
        self.assertNotIn("test_onnxruntime was skipped and", done.stderr)
        done = self.run_script(LIST, True, c=PYTEST.replace("no ONNX Runtime here", "no octavo here"))
        self.assertIn("test_onnxruntime was skipped and is not in", done.stderr)

    def test_what_cannot_be_read_is_an_error(self):
        self.assertIn("has no reason", self.run_script("All/*\n", False, a=GOOGLETEST).stderr)
        self.assertNotEqual(self.run_script(LIST, False, a=GOOGLETEST[:200]).returncode, 0)
        (self.folder / "a.xml").unlink()
        done = self.run_script(LIST, False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no report", done.stderr)

    def test_the_committed_list_is_sound(self):
        done = self.run_script((ROOT / "tests/skips.txt").read_text(), True, a=GOOGLETEST.replace("DISABLED_Old", "Old/a").replace("suppressed", "completed").replace("notrun", "run"))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
