import unittest

from gpu_table import cases, table

RIGHT = {"ok": True, "max_rel_error": 1e-6}
WRONG = {"ok": False, "max_rel_error": 0.5}


def row(*samples, **changes):
    return {"tuned_seconds": 40, "trials": 1400, "trials_per_s": 35.0, "samples_us": list(samples), "check": RIGHT} | changes


def network_result(**changes):
    result = {"part": "resnet-18", "finished": True, "when": "2026-01-02 03:04", "build": "b1",
              "baseline": {"variants": {"nchw": 1100.0, "nhwc": 1000.0}, "best_us": 1000.0},
              "rows": {"default": row(150.0, 140.0, 160.0, tasks_us=136.0, estimated_us=153.0),
                       "strict fp32": row(200.0, tuned_seconds=15, tasks_us=206.0)}}
    return result | changes


def kernels_result(part, kernels, baselines):
    return {"part": part, "finished": True, "when": "2026-01-02 03:04", "build": "b1",
            "rows": {name: row(*samples, schedule="direct/tile") for name, samples in kernels.items()},
            "baseline": {"kernels": {name: {"variants": {"nhwc fused": best}, "best_us": best} for name, best in baselines.items()}}}


class TableTest(unittest.TestCase):
    def test_a_network_has_a_row_for_each_arithmetic_with_its_budget(self):
        rows = table.rows_of("resnet-18", network_result())
        self.assertEqual([table.cells_of(r) for r in rows], [
            ["ResNet-18", "40 s", "150.0 us", "1000.0 us", "0.150", "-9.3%", "+2.0%", "PyTorch nhwc, 35 trials/s"],
            ["ResNet-18, strict fp32", "15 s", "200.0 us", "1000.0 us", "0.200", "+3.0%", "", "PyTorch nhwc, 35 trials/s"]])

    def test_without_baselines_there_is_no_ratio(self):
        first = table.rows_of("resnet-50", network_result(baseline={}))[0]
        self.assertEqual((first.ours, first.baseline, first.ratio), ("150.0 us", "", ""))

    def test_a_wrong_output_is_never_right(self):
        result = network_result(rows={"default": row(1.0, against_torch=WRONG), "strict fp32": row(1.0, check=WRONG)})
        self.assertFalse(table.is_right(result))
        last = table.rows_of("mobilenet-v2", result)[-1]
        self.assertEqual((last.ours, last.note), ("WRONG", "default, against PyTorch, strict fp32"))
        self.assertTrue(table.is_right(network_result()))

    def test_parts_that_failed_or_were_cut_say_so(self):
        failed = network_result(finished=False, rows={}, failed="diapason tune ended with 3: no device")
        self.assertEqual([(r.work, r.note) for r in table.rows_of("resnet-50", failed)],
                         [("resnet-50: not finished", "diapason tune ended with 3: no device")])
        cut = network_result(finished=False)
        self.assertEqual((table.rows_of("resnet-50", cut)[-1].work, table.rows_of("resnet-50", cut)[-1].note),
                         ("resnet-50: not finished", "the run was cut"))
        self.assertFalse(table.is_right(failed) or table.is_right(cut))
        self.assertEqual(table.rows_of("resnet-50", {}), [])

    def test_a_baseline_that_was_not_compiled_in_time_is_told(self):
        rows = table.rows_of("resnet-18", network_result(compile_failed="the baseline's `compiled resnet18` was not done in 120 s"))
        self.assertEqual((rows[-1].work, rows[-1].note),
                         ("resnet-18: torch.compile", "the baseline's `compiled resnet18` was not done in 120 s"))

    def test_kernels_have_a_row_each_and_their_geometric_mean(self):
        result = kernels_result("convs", {"a": [2.0, 3.0, 1.0], "b": [8.0]}, {"a": 20.0, "b": 10.0})
        rows = table.rows_of("convs", result)
        self.assertEqual([(r.work, r.ours, r.baseline, r.ratio) for r in rows], [
            ("a", "2.0 us", "20.0 us", "0.100"), ("b", "8.0 us", "10.0 us", "0.800"),
            ("convs: geometric mean of 2", "", "", "0.283")])
        self.assertEqual(rows[0].note, "PyTorch nhwc fused, direct/tile, 35 trials/s")

    def test_each_form_of_gemm_is_compared_with_the_same_baseline(self):
        result = kernels_result("gemm", dict.fromkeys(cases.GEMM_MODES, [130.0]), {cases.GEMM.name: 200.0})
        self.assertEqual([(r.work, r.ratio) for r in table.rows_of("gemm", result)], [
            ("GEMM 4096^3", "0.650"), ("GEMM 4096^3, without Strassen", "0.650"), ("GEMM 4096^3, strict fp32", "0.650"),
            ("GEMM 4096^3, strict fp32, without Strassen", "0.650")])

    def test_columns_are_aligned_and_rows_become_markdown(self):
        rows = [table.Row("short", "40 s", "1.0 us", "10.0 us", "0.100", "-1.0%"), table.Row("a longer name", "5 s", "12.0 us", note="why")]
        self.assertEqual(table.text(rows), "short          40 s   1.0 us  10.0 us  0.100  -1.0%\n"
                                           "a longer name   5 s  12.0 us                           why")
        self.assertEqual(table.markdown(rows).splitlines(), [
            "| work | tuned | Diapason | PyTorch | ratio | tasks' sum | estimate |  |", "|---|---:|---:|---:|---:|---:|---:|---|",
            "| short | 40 s | 1.0 us | 10.0 us | 0.100 | -1.0% |  |  |", "| a longer name | 5 s | 12.0 us |  |  |  |  | why |"])

    def test_the_default_parts_fit_into_two_calls_of_ten_minutes_and_fourteen_minutes_in_all(self):
        self.assertEqual(sorted(part for call in cases.CALLS for part in call), sorted(cases.PARTS))
        for call in cases.CALLS:
            self.assertLess(cases.START + sum(map(cases.planned_seconds, call)), 9 * 60)
        self.assertLess(sum(cases.START + sum(map(cases.planned_seconds, call)) for call in cases.CALLS), 14 * 60)

    def test_groups_name_parts_and_fit_into_ten_minutes_each(self):
        self.assertFalse(set(cases.GROUPS) & set(cases.PARTS + cases.MORE_PARTS))
        for name, parts in cases.GROUPS.items():
            self.assertLessEqual(set(parts), set(cases.PARTS + cases.MORE_PARTS), name)
            self.assertLess(cases.START + sum(map(cases.planned_seconds, parts)), 10 * 60, name)


if __name__ == "__main__":
    unittest.main()
