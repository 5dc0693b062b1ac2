"""The last line of deploy/test.sh: what ctest reports becomes three numbers."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(os.environ["DIAPASON_DEPLOY"])
# As CTest 3.25 writes them.
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux-c++" tests="6" failures="1" disabled="1" skipped="2" hostname="" time="0">
{cases}
</testsuite>
"""
PASSED = '<testcase name="tensor.A" classname="tensor.A" time="0.1" status="run"><system-out>ok</system-out></testcase>'
FAILED = ('<testcase name="tensor.B" classname="tensor.B" time="0.1" status="fail"><failure message=""/>'
          "<system-out>no</system-out></testcase>")
SKIPPED = ('<testcase name="cuda.C" classname="cuda.C" time="0.1" status="notrun">'
           '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>')
CODE = '<testcase name="cuda.D" classname="cuda.D" time="0.1" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'
DISABLED = '<testcase name="cuda.E" classname="cuda.E" time="0" status="disabled"><disabled/></testcase>'
MISSING = ('<testcase name="lower_tests_NOT_BUILT" classname="x" time="0" status="notrun">'
           '<skipped message="Unable to find executable"/></testcase>')


class SummaryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def summary(self, text):
        path = self.folder / "results.xml"
        path.write_text(text, encoding="utf-8")
        return self.of(path)

    def of(self, path):
        done = subprocess.run([sys.executable, "-B", DEPLOY / "test_summary.py", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def ctest(self, *cases):
        return self.summary(CTEST.format(cases="\n".join(cases)))

    def test_what_cannot_run_is_skipped_and_not_passed(self):
        self.assertEqual(self.ctest(PASSED, PASSED, SKIPPED, CODE, DISABLED), (0, ["2 passed, 0 failed, 3 skipped"]))

    def test_a_failure_is_named_and_is_the_exit_status(self):
        self.assertEqual(self.ctest(PASSED, FAILED, SKIPPED), (1, ["failed: tensor.B", "1 passed, 1 failed, 1 skipped"]))

    def test_a_program_that_is_not_there_has_failed(self):
        self.assertEqual(self.ctest(PASSED, MISSING), (1, ["failed: lower_tests_NOT_BUILT", "1 passed, 1 failed, 0 skipped"]))

    def test_no_results_are_a_failure(self):
        code, lines = self.ctest()
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertRegex(lines[0], "^failed: .*results.xml has no results$")

    def test_a_file_that_is_missing_or_cut_off_is_a_failure(self):
        code, lines = self.of(self.folder / "none.xml")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        code, lines = self.summary(CTEST.format(cases=PASSED)[:150])
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))


class TestScript(unittest.TestCase):
    """deploy/test.sh with programs in the place of cmake and ctest."""

    def run_script(self, cmake="exit 0", ctest=None):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "deploy").mkdir()
            (root / "bin").mkdir()
            for name in ("test.sh", "test_summary.py"):
                (root / "deploy" / name).write_bytes((DEPLOY / name).read_bytes())
            (root / "deploy" / "setup.sh").write_text("exit 0\n")
            for name, text in (("cmake", cmake), ("ctest", ctest or "exit 1")):
                (root / "bin" / name).write_text("#!/bin/bash\n" + text + "\n")
                (root / "bin" / name).chmod(0o755)
            done = subprocess.run(["bash", root / "deploy" / "test.sh"], capture_output=True, text=True, check=False,
                                  env={"PATH": "%s:%s" % (root / "bin", os.environ["PATH"])})
            self.assertEqual(sum(" passed, " in line for line in done.stdout.splitlines()), 1)
            return done.returncode, done.stdout.splitlines()[-1]

    def ctest(self, code, *cases):
        """A ctest that writes these results to the file behind --output-junit and has its own opinion of the rest."""
        xml = CTEST.format(cases="".join(cases)).replace("'", "")
        return ("while (($# > 0)); do if [[ $1 == --output-junit ]]; then echo '" + xml + "' >\"$2\"; fi; shift; done\n"
                "echo '100% tests pass, 0 tests failed out of 9'; exit " + str(code))

    def test_the_last_line_has_three_numbers(self):
        self.assertEqual(self.run_script(ctest=self.ctest(0, PASSED, SKIPPED)), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertEqual(self.run_script(ctest=self.ctest(8, PASSED, FAILED)), (1, "1 passed, 1 failed, 0 skipped"))

    def test_steps_that_fail_have_such_a_line_too(self):
        self.assertEqual(self.run_script(cmake="exit 1"), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.run_script(), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_ctest_that_fails_without_a_failed_case_is_a_failure(self):
        code, last = self.run_script(ctest=self.ctest(1, PASSED))
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
