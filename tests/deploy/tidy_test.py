"""deploy/check_tidy.py: what clang-tidy finds in files that were changed fails."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
GOOD = "namespace diapason {\nint Sum(int a, int b) { return a + b; }\n}  // namespace diapason\n"
SIX = "namespace diapason {\nint Sum(int a, int b, int c, int d, int e, int f) { return a + b + c + d + e + f; }\n}  // namespace diapason\n"


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.build = self.root / "build"
        for path in ("base", "build"):
            (self.root / path).mkdir()
        shutil.copy(SOURCE / ".clang-tidy", self.root)
        (self.root / ".gitignore").write_text("/build\n", encoding="utf-8")
        self.git("init", "-q")
        self.write("base/old.cc", SIX)
        self.commit()
        for _ in range(3):
            self.git("commit", "-q", "--allow-empty", "-m", "more")

    def git(self, *args):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", self.root, *args], check=True)

    def write(self, path, text):
        (self.root / path).write_text(text, encoding="utf-8")

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def check(self, unit=None, **settings):
        """By a build that compiles each source alone, or all as that unit."""
        sources = sorted(self.root.glob("base/*.cc"))
        if unit is not None:
            unit.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
        commands = [{"directory": str(self.build), "file": str(source), "command": f"c++ -O1 -I{self.root} -std=c++20 -c {source}"}
                    for source in ([unit] if unit else sources)]
        (self.build / "compile_commands.json").write_text(json.dumps(commands), encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("DIAPASON_TIDY", "GIT_"))} | settings
        return subprocess.run([sys.executable, "-B", SOURCE / "deploy/check_tidy.py", self.build, self.root], capture_output=True, text=True, check=False,
                              env=environment)

    def test_a_change_with_a_finding_fails_and_names_it(self):
        self.write("base/sum.cc", SIX)
        self.commit()
        run = self.check()
        self.assertEqual(run.returncode, 1)
        self.assertIn("base/sum.cc:2:5: error: function 'Sum' exceeds recommended size/complexity thresholds [readability-function-size", run.stderr)
        self.assertIn("6 parameters (threshold 5)", run.stderr)
        self.assertIn("change that, or say // NOLINT(CHECK): and why", run.stderr)

    def test_changes_that_are_not_committed_count(self):
        self.write("base/sum.cc", SIX)
        self.assertEqual(self.check().returncode, 1)
        self.write("base/sum.cc", SIX.replace("int Sum", "// NOLINTNEXTLINE(readability-function-size): the caller's form\nint Sum"))
        self.assertEqual(self.check().returncode, 0)

    def test_a_header_is_checked_where_a_source_includes_it(self):
        self.write("base/use.cc", '#include "base/sum.h"\n')
        self.write("base/sum.h", "#pragma once\ninline " + SIX.split("\n")[1] + "\n")
        run = self.check()
        self.assertEqual(run.returncode, 1)
        self.assertIn("base/sum.h:2:12: error", run.stderr)

    def test_a_header_is_checked_with_the_source_beside_it(self):
        self.write("base/sum.cc", '#include "base/sum.h"\n' + GOOD)
        self.write("base/sum.h", "#pragma once\ninline " + SIX.split("\n")[1] + "\n")
        run = self.check()
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr.count("base/sum.h:2:12: error"), 1)

    def test_a_header_that_the_source_beside_it_does_not_include_is_checked_too(self):
        self.write("base/sum.cc", GOOD)
        self.write("base/sum.h", "#pragma once\nstruct bad_name {};\n")
        self.write("base/use.cc", '#include "sum.h"\n')
        self.assertIn("base/sum.h:2:8: error: invalid case style for struct 'bad_name'", self.check().stderr)

    def test_a_copy_without_history_passes_and_one_of_the_last_commit_alone_is_checked(self):
        (self.root / ".git").rename(self.root / "history")
        run = self.check()
        self.assertEqual((run.returncode, run.stdout), (0, "0 changed files: clang-tidy finds nothing (0 looked at, the others have passed before)\n"))
        (self.root / "history").rename(self.root / ".git")
        self.write("base/sum.cc", SIX)
        self.commit()
        shallow = self.root / "build" / "shallow"
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{self.root}", shallow], check=True)
        shutil.rmtree(self.root / ".git")
        (shallow / ".git").rename(self.root / ".git")
        self.assertIn("base/sum.cc:2:5: error", self.check().stderr)

    def test_what_does_not_compile_with_clang_fails(self):
        self.write("base/sum.cc", "int Sum() { return a; }\n")
        self.assertIn("use of undeclared identifier 'a'", self.check().stderr)

    def test_what_passed_is_not_looked_at_again_until_it_or_its_header_changes(self):
        self.write("base/sum.cc", '#include "base/sum.h"\n' + GOOD)
        self.write("base/sum.h", "#pragma once\n")
        self.commit()
        self.assertEqual(self.check().stdout, "2 changed files: clang-tidy finds nothing (2 looked at, the others have passed before)\n")
        self.assertEqual(self.check().stdout, "2 changed files: clang-tidy finds nothing (0 looked at, the others have passed before)\n")
        self.write("base/sum.h", "#pragma once\nstruct bad_name {};\n")
        self.assertIn("invalid case style for struct 'bad_name'", self.check().stderr)

    def test_time_is_bounded_and_what_is_left_named(self):
        self.write("base/sum.cc", SIX)
        run = self.check(DIAPASON_TIDY_SECONDS="0")
        self.assertEqual((run.returncode, run.stdout.split("\n")[0]), (0, "no time was left for 1 file: base/sum.cc"))

    def test_older_files_are_checked_when_all_are_asked_for(self):
        self.assertEqual(self.check().returncode, 0)
        self.assertIn("base/old.cc:2:5: error", self.check(DIAPASON_TIDY_ALL="1").stderr)

    def test_units_are_checked_as_a_whole_when_all_files_are_asked_for(self):
        (self.root / "base/old.cc").unlink()
        for name in ("a", "b", "c"):
            self.write(f"base/{name}.cc", GOOD.replace("Sum", name.upper()))
        self.write("base/a.cc", '#include "base/a.h"\n' + GOOD)
        self.write("base/a.h", "#pragma once\nnamespace a {\nstruct A {};\n}  // namespace a\n")
        self.write("base/used.cc", '#include "base/a.h"\nusing a::A;\n')
        self.commit()
        unit = self.build / "unit.cxx"
        run = self.check(unit, DIAPASON_TIDY_ALL="1")
        self.assertIn("base/used.cc:2:10: error: using decl 'A' is unused", run.stderr)
        self.write("base/used.cc", '#include "base/a.h"\nusing a::A;\nA Made() { return {}; }\n')
        self.assertEqual(self.check(unit, DIAPASON_TIDY_ALL="1").stdout,
                         "5 files: clang-tidy finds nothing (1 looked at, the others have passed before)\n")
        self.write("base/a.h", "#pragma once\nnamespace a {\nstruct A {};\nstruct bad_name {};\n}  // namespace a\n")
        self.assertIn("base/a.h:4:8: error: invalid case style for struct 'bad_name'", self.check(unit, DIAPASON_TIDY_ALL="1").stderr)
        self.write("base/a.h", "#pragma once\nnamespace a {\nstruct A {};\n}  // namespace a\n")
        self.write("base/c.cc", SIX)
        self.write("base/b.cc", GOOD.replace("Sum", "Product"))
        self.write("base/a.cc", '#include "base/a.h"\n' + GOOD.replace("Sum", "Quotient"))
        run = self.check(unit, DIAPASON_TIDY_ALL="1")
        self.assertIn("base/c.cc:2:5: error: function 'Sum' exceeds", run.stderr)
        self.assertEqual(run.stderr.count("error:"), 1)

    def test_a_build_that_is_not_there_is_named(self):
        run = subprocess.run([sys.executable, "-B", SOURCE / "deploy/check_tidy.py", self.root / "none", self.root], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("run cmake -S . -B", run.stderr)


if __name__ == "__main__":
    unittest.main()
