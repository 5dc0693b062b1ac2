import pathlib
import tempfile
import unittest

from gpu_table.results import Results


class ResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_with(self, name, **parts):
        results = Results(self.folder / name)
        for part, build in parts.items():
            results.save(part, {"part": part, "build": build})
        return results

    def test_a_part_that_never_ran_is_empty(self):
        self.assertEqual(Results(self.folder / "new").load("convs"), {})

    def test_what_was_saved_is_there_when_the_folder_is_opened_again(self):
        self.run_with("a", convs="1", gemm="1")
        self.assertEqual(Results(self.folder / "a").load("gemm"), {"part": "gemm", "build": "1"})
        self.assertEqual([path.name for path in (self.folder / "a").iterdir()], ["results.json"])

    def test_runs_of_one_build_are_added(self):
        merged, _, _ = self.run_with("merged"), self.run_with("a", convs="1"), self.run_with("b", gemm="1")
        merged.add(self.folder / "a")
        merged.add(self.folder / "b")
        self.assertEqual([merged.load(part)["part"] for part in ("convs", "gemm")], ["convs", "gemm"])

    def test_a_part_of_two_runs_is_refused(self):
        merged, _, _ = self.run_with("merged"), self.run_with("a", convs="1"), self.run_with("b", convs="1")
        merged.add(self.folder / "a")
        with self.assertRaisesRegex(SystemExit, "b has convs, which another folder has, too; a table has one run of each part"):
            merged.add(self.folder / "b")

    def test_runs_of_different_builds_are_refused(self):
        merged, _, _ = self.run_with("merged"), self.run_with("a", convs="1"), self.run_with("b", gemm="2")
        merged.add(self.folder / "a")
        with self.assertRaisesRegex(SystemExit, "b is of build 2, the parts here are of build 1; a table is of one build"):
            merged.add(self.folder / "b")

    def test_a_folder_without_results_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "there is no results.json in .*nowhere; name the --out of an earlier run"):
            Results(self.folder / "merged").add(self.folder / "nowhere")


if __name__ == "__main__":
    unittest.main()
