import pathlib
import tempfile
import unittest

from gpu_table.results import Results


class ResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_part_that_never_ran_is_empty(self):
        self.assertEqual(Results(self.folder / "new").load("convs"), {})

    def test_an_earlier_run_is_taken_over_but_never_over_what_is_here(self):
        earlier, now = Results(self.folder / "earlier"), Results(self.folder / "now")
        for name in ("old.db", "old.db-wal", "old.db.model", "both.db"):
            (earlier.folder / name).write_text("earlier " + name)
        (now.folder / "both.db").write_text("now")
        earlier.save("convs", {"run": 1})
        earlier.save("gemm", {"run": 1})
        now.save("gemm", {"run": 2})
        now.take_over(earlier.folder)
        self.assertEqual((now.load("convs"), now.load("gemm")), ({"run": 1}, {"run": 2}))
        self.assertEqual({p.name: p.read_text() for p in now.folder.glob("*.db*")},
                         {"old.db": "earlier old.db", "old.db-wal": "earlier old.db-wal", "old.db.model": "earlier old.db.model",
                          "both.db": "now"})

    def test_a_missing_earlier_run_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "--history .*nowhere is no folder; name the --out of an earlier run"):
            Results(self.folder).take_over(self.folder / "nowhere")

    def test_seconds_of_tuning_add_up_over_runs(self):
        Results(self.folder).note_tuning("resnet-18", 180)
        Results(self.folder).note_tuning("resnet-18", 60)
        self.assertEqual(Results(self.folder).tuned_seconds("resnet-18"), 240)
        self.assertEqual(Results(self.folder).tuned_seconds("convs"), 0)


if __name__ == "__main__":
    unittest.main()
