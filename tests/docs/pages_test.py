"""How pages are read, compared and looked at."""
import os
import pathlib
import unittest

import dry_check
import pages
import shapes

SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])


def block(language, text, comment=None):
    return pages.Block("a.md", 1, language, text, comment)


class Blocks(unittest.TestCase):
    def test_a_block_has_its_language_its_text_and_the_comment_before_it(self):
        text = "# A\n\n<!-- not run: a GPU -->\n```sh\nx\n```\n\n   ```c\n   int y;\n     z\n   ```\n"
        first, second = pages.blocks("a.md", text)
        self.assertEqual((first.line, first.language, first.text, first.reason), (4, "sh", "x\n", "a GPU"))
        self.assertEqual((second.line, second.language, second.text, second.reason), (8, "c", "int y;\n  z\n", None))
        with self.assertRaisesRegex(ValueError, "a.md:1: the block does not end"):
            pages.blocks("a.md", "```sh\nx\n")

    def test_indented_blocks_are_found(self):
        self.assertEqual(pages.indented("a\n\n    diapason tune\n\n```sh\n\n    inside\n```\n"), [3])

    def test_what_cannot_be_run_needs_a_mark_with_a_reason(self):
        self.assertIsNone(pages.problem(block("sh", "diapason tune\n"), ["tune"]))
        self.assertIsNone(pages.problem(block("sh", "diapason tune\n", " not run: a GPU "), ["tune"]))
        self.assertIn("is no mark", pages.problem(block("sh", "x\n", " not run: "), ["tune"]))
        self.assertIn("is no mark", pages.problem(block("sh", "x\n", " skipped "), ["tune"]))
        self.assertIn("nothing runs the language 'yaml'", pages.problem(block("yaml", "a: 1\n"), ["tune"]))
        self.assertIn("nothing runs the language ''", pages.problem(block("", "x\n", " not run: a GPU "), ["tune"]))
        self.assertEqual(pages.problem(block("text", "diapason tune x\n"), ["tune"]), "has a command: it is not text")
        self.assertIsNone(pages.problem(block("text", "diapason cost model\n"), ["tune"]))

    def test_commands_have_continuations_outputs_and_no_comments(self):
        found = pages.commands(block("console", "$ a \\\n  b   # c\nout\n\nmore\n$ d\n"))
        self.assertEqual([(one.text, one.output) for one in found], [("a \\\n  b", ["out", "", "more"]), ("d", [])])
        found = pages.commands(block("sh", "# c\na\nhost0$ b\n"))
        self.assertEqual([(one.text, one.output) for one in found], [("a", []), ("b", [])])
        with self.assertRaisesRegex(ValueError, "output without a command"):
            pages.commands(block("console", "out\n"))


class Unrun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.check = dry_check.DryCheck(SOURCE, BUILD, BUILD / "bin/diapason")

    def problems(self, text, language="sh"):
        return self.check.problems(block(language, text))

    def test_options_commands_files_and_targets_that_there_are_pass(self):
        self.assertEqual(self.problems("diapason tune ... --tracker 10.0.0.1:9190 --launch slurm \\\n  --workers 4\n"), [])
        self.assertEqual(self.problems("host$ diapason jobs list|show ... --service HOST:1 SECURITY\n"), [])
        self.assertEqual(self.problems("cmake --build build --target diapason && bench/h200.sh --call 1\n"), [])
        self.assertEqual(self.problems("diapason explain conv2d --stride 2 --task 1\n"), [])

    def test_others_are_named(self):
        self.assertEqual(self.problems("diapason tune x --warp 3\n"), ["`diapason tune` has no --warp"])
        self.assertEqual(self.problems("diapason explain conv2d --strides 2\n"), ["`diapason explain` has no --strides"])
        self.assertEqual(self.problems("diapason jobs list|leave\n"), ["there is no `diapason jobs leave`"])
        self.assertEqual(self.problems("diapason tuna x\n"), ["there is no `diapason tuna`"])
        self.assertEqual(self.problems("bench/none.sh\n"), ["there is no bench/none.sh"])
        self.assertEqual(self.problems("bench/h200.sh --none\n"), ["bench/h200.sh has no --none"])
        self.assertEqual(self.problems("cmake --build build --target none\n"), ["there is no target none"])
        self.assertEqual(self.problems("build/bin/none 3\n"), ["there is no target none"])
        self.assertIn("syntax error", self.problems("for x in; do\n")[0])
        self.assertEqual(len(self.problems("x = (\n", "python")), 1)
        self.assertEqual(len(self.problems("x = \n", "toml")), 1)
        self.assertEqual(self.problems("int x;\n", "c"), ["nothing looks at c that is not run"])


class Shapes(unittest.TestCase):
    def test_words_and_order_count_and_numbers_do_not(self):
        page = ["id  task   count", " 1  gemm_2x3x4   1", "...", "total 3.5 ms", "done"]
        printed = ["id  task         count", " 7  gemm_20x30x40    1", "x", "y", "total 88 us", "done"]
        self.assertIsNone(shapes.difference(page, printed))
        self.assertEqual(shapes.difference(page, printed[:-2] + ["sum 88 us", "done"]), "total 3.5 ms")
        self.assertEqual(shapes.difference(page, printed + ["more"]), "(the end of the output)")
        self.assertEqual(shapes.difference(["a", "b"], ["b", "a"]), "a")

    def test_dots_within_a_line_stand_for_any_text(self):
        self.assertIsNone(shapes.difference(["f(x, ...) {"], ["f(x, y, z) {"]))
        self.assertEqual(shapes.difference(["f(x, ...) {"], ["g(x, y) {"]), "f(x, ...) {")


if __name__ == "__main__":
    unittest.main()
