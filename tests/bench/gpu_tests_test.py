"""bench/gpu_tests.sh with programs that only talk like tests."""
import io
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import gpu_tests

SCRIPT = pathlib.Path(gpu_tests.__file__).parent / "gpu_tests.sh"
# A test program with three cases, which takes GoogleTest's shards.
PROGRAM = r"""#!/bin/bash
ran=0 arguments=$*
case_of() {
  [[ ${arguments} == *-*"$2"* ]] && return
  (( $1 % ${GTEST_TOTAL_SHARDS:-1} == ${GTEST_SHARD_INDEX:-0} )) || return
  echo "[ RUN      ] $2"
  echo "output of $2$4"
  echo "[ $3 ] $2 (1 ms)"
  ran=$((ran + 1))
}
case_of 0 A.Passes "      OK"
case_of 1 A.Skips " SKIPPED"
case_of 2 A.More "      OK"
MORE
echo "[==========] $ran tests from 1 test suite ran. (3 ms total)"
"""


def done(text, code=0, problem=None, suite="s", name="s 0/1"):
    job = gpu_tests.Job(suite, name, [], {}, 1)
    results, found = gpu_tests.parse(job, text, code)
    return gpu_tests.Done(job, results, found if problem is None else problem, text, 1.0)


def ran(*cases):
    lines = []
    for name, word in cases:
        lines += ["[ RUN      ] " + name, "[ %s ] %s (0 ms)" % (word, name)]
    return "\n".join(lines + ["[==========] %d tests from 1 test suite ran. (0 ms total)" % len(cases)])


PASSED, FAILED, SKIPPED = "      OK", " FAILED ", " SKIPPED"


class ParseTest(unittest.TestCase):
    def test_cases_are_told_apart(self):
        results, problem = gpu_tests.parse_gtest(ran(("A.a", PASSED), ("A.b/1", FAILED), ("A.c", SKIPPED)), 1)
        self.assertEqual(results, {"A.a": "passed", "A.b/1": "failed", "A.c": "skipped"})
        self.assertEqual(problem, "")

    def test_output_without_a_line_break_hides_no_result(self):
        text = ran(("A.a", PASSED)).replace("[       OK", "no line break[       OK")
        self.assertEqual(gpu_tests.parse_gtest(text, 0), ({"A.a": "passed"}, ""))

    def test_a_case_that_did_not_end_has_failed(self):
        results, problem = gpu_tests.parse_gtest("[ RUN      ] A.a\n[       OK ] A.a (1 ms)\n[ RUN      ] A.b\n", -11)
        self.assertEqual(results, {"A.a": "passed", "A.b": "failed"})
        self.assertEqual(problem, "it did not end: exit status -11")

    def test_a_program_that_fails_behind_its_cases_has_failed(self):
        self.assertEqual(gpu_tests.parse_gtest(ran(("A.a", PASSED)), 1)[1], "exit status 1 without a failed case")

    def test_python_tests_are_counted(self):
        self.assertEqual(list(gpu_tests.parse_unittest("Ran 3 tests in 1s\n\nFAILED (failures=1, skipped=1)", 1)[0].values()),
                         ["failed", "skipped", "passed"])
        self.assertEqual(gpu_tests.parse_unittest("Ran 0 tests in 0s\n\nOK", 0)[1], "exit status 0 after 0 cases")


class ReportTest(unittest.TestCase):
    def lines(self, *dones):
        out = io.StringIO()
        code = gpu_tests.report(list(dones), out)
        return code, out.getvalue().splitlines()

    def test_a_case_that_ran_in_every_shard_counts_once(self):
        code, lines = self.lines(done(ran(("G.x", PASSED), ("G.y", SKIPPED))), done(ran(("G.x", SKIPPED), ("G.y", SKIPPED))))
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))

    def test_a_failure_of_one_shard_is_the_cases(self):
        code, lines = self.lines(done(ran(("G.x", PASSED))), done(ran(("G.x", FAILED)), 1))
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("failed: s G.x", lines)

    def test_shards_that_compared_nothing_together_have_failed(self):
        text = ran(("G.x", PASSED)) + "\nguard: numbers cuda: 2 tasks, 3 sketches, %d candidates\n"
        self.assertEqual(self.lines(done(text % 0), done(text % 0))[1][-1], "1 passed, 1 failed, 0 skipped")
        code, lines = self.lines(done(text % 4), done(text % 0))
        self.assertEqual((code, lines[0]), (0, "guard: numbers cuda: 4 tasks, 6 sketches, 4 candidates"))

    def test_no_suites_are_a_failure(self):
        self.assertEqual(self.lines(), (1, ["0 passed, 1 failed, 0 skipped"]))


class BundleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = pathlib.Path(folder.name) / "bundle"
        (self.bundle / "bin").mkdir(parents=True)

    def program(self, name, more=""):
        path = self.bundle / "bin" / name
        path.write_text(PROGRAM.replace("MORE", more))
        path.chmod(0o755)

    def run_script(self, *words):
        finished = subprocess.run(["bash", SCRIPT, *words, "--suites", "^(a|b|build|sketch|fuzz)$"], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, BUNDLE=str(self.bundle)))
        return finished.returncode, finished.stdout.splitlines(), finished.stderr

    def test_an_archive_is_unpacked_and_all_its_programs_run(self):
        for name in ("a_tests", "b_tests", "build_tests", "sketch_tests", "fuzz_onnx_driver"):
            self.program(name)
        archive = self.bundle.with_suffix(".tar.xz")
        subprocess.run(["tar", "-C", self.bundle, "-cJf", archive, "."], check=True)
        code, lines, _ = self.run_script(archive)
        self.assertEqual((code, lines[-1]), (0, "9 passed, 0 failed, 4 skipped"))
        self.assertEqual([line.split(":")[0] for line in lines[1:-1]], ["a", "b", "build", "fuzz", "sketch"])

    def test_cases_are_left_out_of_all_programs(self):
        for name in ("a_tests", "build_tests", "sketch_tests"):
            self.program(name)
        code, lines, _ = self.run_script(self.bundle, "--without", "A.More:B.*")
        self.assertEqual((code, lines[-1]), (0, "3 passed, 0 failed, 3 skipped"))

    def test_a_failure_is_shown_with_its_output(self):
        self.program("a_tests", 'case_of 3 A.Fails " FAILED " " is shown"; failed=1')
        code, lines, _ = self.run_script(self.bundle)
        self.assertEqual((code, lines[-1]), (1, "2 passed, 1 failed, 1 skipped"))
        self.assertIn("output of A.Fails is shown", lines)
        self.assertNotIn("output of A.Passes", lines)

    def test_a_program_that_hangs_is_killed_with_what_it_started(self):
        self.program("a_tests", 'sleep 600 & echo "[ RUN      ] A.Hangs"; sleep 600')
        started = time.monotonic()
        code, lines, _ = self.run_script(self.bundle, "--limit", "2")
        self.assertLess(time.monotonic() - started, 20)
        self.assertEqual((code, lines[-1]), (1, "2 passed, 3 failed, 1 skipped"))  # A.Hangs and both processes
        self.assertIn("failed: a a 0/2: killed after 2 s", lines)

    def test_what_does_not_fit_into_the_time_has_failed(self):
        self.program("a_tests", "sleep 1")
        self.program("b_tests", "sleep 1")
        code, lines, _ = self.run_script(self.bundle, "--jobs", "1", "--total", "1.5")
        self.assertEqual(code, 1)
        self.assertIn("failed: b b 1/2: not begun: the time is over", lines)

    def test_a_missing_bundle_names_the_fix(self):
        code, _, error = self.run_script("nowhere.tar.xz")
        self.assertEqual(code, 2)
        self.assertIn("there is no nowhere.tar.xz: make it with deploy/bundle.sh build/gpu-tests --tests", error)


if __name__ == "__main__":
    unittest.main()
