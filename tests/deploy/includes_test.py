"""deploy/check_includes.py: what the table of folders allows is what files include."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(os.environ["DIAPASON_DEPLOY"])
TABLE = """| folder | holds | may include |
|---|---|---|
| `base` | low | nothing |
| `top` | high | {top} |
| `top/part` | its own rules | {part} |
"""


class IncludesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("base/clock.h", "#pragma once\n#include <string>\n")
        self.write("top/view.cc", '#include "base/clock.h"\n#include "absl/status/status.h"\n#include "top/below/list.h"\n')
        self.write("top/below/list.h", "")
        self.write("top/part/own.h", "")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def check(self, top="`base`", part="nothing"):
        self.write("docs/architecture.md", TABLE.format(top=top, part=part))
        run = subprocess.run([sys.executable, "-B", DEPLOY / "check_includes.py", self.root], capture_output=True, text=True, check=False)
        self.assertEqual(run.stderr, "")
        self.assertEqual(run.returncode, 1 if run.stdout else 0)
        return run.stdout

    def test_what_the_table_allows_is_fine(self):
        self.assertEqual(self.check(), "")

    def test_an_include_that_is_not_allowed_is_named(self):
        self.write("top/part/own.h", ' #  include "base/clock.h"\n')
        self.assertEqual(self.check(), "top/part/own.h includes base/clock.h, but top/part may not include base (docs/architecture.md): "
                                       "move what it needs, or allow it there\n")

    def test_what_nobody_includes_is_not_allowed(self):
        self.assertEqual(self.check(part="`base`"), "docs/architecture.md allows top/part to include base, which no file of it does: take it out of the row\n")

    def test_circles_are_found(self):
        self.write("top/view.cc", '#include "base/clock.h"\n#include "top/part/own.h"\n')
        self.write("top/part/own.h", '#include "top/below/list.h"\n')
        self.assertEqual(self.check(top="`base`, `top/part`", part="`top`"), "docs/architecture.md allows a circle: top -> top/part -> top\n")

    def test_a_folder_without_a_row_is_named(self):
        self.write("docs/architecture.md", "")
        self.write("top/view.cc", "")
        table = "| folder | holds | may include |\n|---|---|---|\n| `top/part` | p | nothing |\n"
        self.write("docs/architecture.md", table)
        run = subprocess.run([sys.executable, "-B", DEPLOY / "check_includes.py", self.root], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("top/view.cc is in no folder of the table in docs/architecture.md: add a row for its folder\n", run.stdout)

    def test_a_page_without_a_table_is_said(self):
        self.write("docs/architecture.md", "# Architecture\n")
        run = subprocess.run([sys.executable, "-B", DEPLOY / "check_includes.py", self.root], capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stdout), (1, "docs/architecture.md has no table of folders: its rows begin with '| `'\n"))


if __name__ == "__main__":
    unittest.main()
