"""Runs every block of code of README.md and docs/*.md by its language, and compares what commands print with the pages.

Blocks that are marked (pages.py) are looked at without running them.
"""
import os
import pathlib
import re
import unittest

import dry_check
import pages
import session

SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])
PROGRAM = BUILD / "bin/diapason"
PAGES = ["README.md", *sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "docs").glob("*.md"))]


def text_of(page):
    return (SOURCE / page).read_text(encoding="utf-8")


class Snippets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = session.Shared(SOURCE, BUILD)
        cls.check = dry_check.DryCheck(SOURCE, BUILD, PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.shared.scratch.cleanup()

    def test_every_block_has_a_language_that_is_run_or_a_reason_why_not(self):
        commands, count = self.check.subcommands(), 0
        self.assertIn("tune", commands)
        for page in PAGES:
            self.assertEqual(pages.indented(text_of(page)), [], f"{page}: fence blocks, with their language")
            for block in pages.blocks(page, text_of(page)):
                with self.subTest(str(block)):
                    self.assertIsNone(pages.problem(block, commands))
                    count += 1
        self.assertGreater(count, 60)

    def test_blocks_that_are_not_run_name_what_there_is(self):
        count = 0
        for page in PAGES:
            for block in pages.blocks(page, text_of(page)):
                if block.reason:
                    with self.subTest(str(block)):
                        self.assertEqual(self.check.problems(block), [])
                        count += 1
        self.assertGreater(count, 10)

    def follow(self, page):
        """Runs the page's blocks in order, then those in Python."""
        blocks = pages.blocks(page, text_of(page))
        one = session.Session(self.shared, page, blocks)
        self.addCleanup(one.close)
        for block in blocks:
            if block.reason or block.language in pages.FORMS + ("python", "pycon"):
                continue
            with self.subTest(str(block)):
                one.run(block)
        if any(block.language in ("python", "pycon") for block in blocks):
            one.run_python()


def add_pages():
    for page in PAGES:
        name = "test_" + re.sub(r"\W", "_", page.removesuffix(".md")).lower() + "_runs"
        setattr(Snippets, name, lambda self, page=page: self.follow(page))


add_pages()

if __name__ == "__main__":
    unittest.main()
