"""deploy/check_threads.py: members that are used without the mutex that guards them are found."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
COUNTER = """#include "base/mutex.h"
class Counter {{
 public:
  void Add() {{
    {lock}
    ++count_;
  }}

 private:
  diapason::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
}};
"""


class ThreadsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.build = self.root / "build"
        for path in ("base", "scheduler", "tests", "build"):
            (self.root / path).mkdir()
        shutil.copy(SOURCE / "base/mutex.h", self.root / "base")

    def check(self, *sources):
        commands = [{"directory": str(self.build), "file": str(source), "command": f"c++ -O1 -I{self.root} -std=c++20 -c {source}"} for source in sources]
        (self.build / "compile_commands.json").write_text(json.dumps(commands), encoding="utf-8")
        return subprocess.run([sys.executable, "-B", SOURCE / "deploy/check_threads.py", self.build, self.root], capture_output=True, text=True, check=False)

    def write(self, path, lock):
        file = self.root / path
        file.write_text(COUNTER.format(lock=lock), encoding="utf-8")
        return file

    def test_what_is_locked_is_fine(self):
        run = self.check(self.write("scheduler/counter.cc", "diapason::MutexLock lock(mutex_);"))
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "1 unit with mutexes: nothing is used without the one that guards it\n", ""))

    def test_what_is_not_locked_is_named(self):
        run = self.check(self.write("scheduler/counter.cc", ""))
        self.assertEqual(run.returncode, 1)
        self.assertIn("scheduler/counter.cc:6:7: error: writing variable 'count_' requires holding mutex 'mutex_' exclusively", run.stderr)
        self.assertIn("lock what guards these members, or say that the caller holds it (base/mutex.h)", run.stderr)

    def test_mutexes_that_clang_does_not_check_are_named(self):
        good = self.write("scheduler/counter.cc", "diapason::MutexLock lock(mutex_);")
        (self.root / "scheduler/queue.h").write_text("#include <mutex>\nstd::mutex mutex;\n", encoding="utf-8")
        (self.root / "tests/queue.cc").write_text("std::mutex mutex;\n", encoding="utf-8")
        run = self.check(good)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr, "scheduler/queue.h:2 uses std::mutex: use Mutex and CondVar of base/mutex.h, which clang checks\n")

    def test_sources_compiled_as_one_are_looked_into(self):
        self.write("scheduler/counter.h", "")
        source = self.root / "scheduler/count.cc"
        source.write_text('#include "scheduler/counter.h"\n', encoding="utf-8")
        unit = self.build / "unity_0.cxx"
        unit.write_text(f'#include "{source}"\n', encoding="utf-8")
        run = self.check(unit)
        self.assertEqual(run.returncode, 1)
        self.assertIn("scheduler/counter.h:6:7: error", run.stderr)

    def test_tests_are_not_looked_into(self):
        bad, good = self.write("tests/counter.cc", ""), self.write("scheduler/counter.cc", "diapason::MutexLock lock(mutex_);")
        run = self.check(bad, good)
        self.assertEqual((run.returncode, run.stdout), (0, "1 unit with mutexes: nothing is used without the one that guards it\n"))

    def test_nothing_to_look_into_is_an_error(self):
        run = self.check()
        self.assertEqual(run.returncode, 1)
        self.assertIn("no unit of", run.stderr)

    def test_a_build_that_is_not_there_is_named(self):
        run = subprocess.run([sys.executable, "-B", SOURCE / "deploy/check_threads.py", self.root / "none", self.root], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("run cmake -S . -B", run.stderr)


if __name__ == "__main__":
    unittest.main()
