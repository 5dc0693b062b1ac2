import unittest

from gpu_table import cases, table


def network_result(**changes):
    check = {"ok": True, "max_rel_error": 1e-6}
    result = {"finished": True, "when": "2026-01-02 03:04", "tuned_seconds": 360, "peer": {"best_us": 1000.0},
              "tuning": [{"measured": 3000, "seconds": 100.0, "stages": {"workers": {"runner_utilisation": 0.95, "builder_utilisation": 0.2}}},
                         {"measured": 100, "seconds": 100.0, "stages": {"workers": None}}],
              "states": {"early": {"samples_us": [230.0, 250.0, 240.0], "estimated_us": 200.0, "check": check},
                         "end": {"samples_us": [150.0, 140.0, 160.0], "estimated_us": 136.0, "check": check}}}
    return result | changes


def kernels_result(kernels, peers):
    check = {"ok": True, "max_rel_error": 1e-6}
    return {"finished": True, "when": "2026-01-02 03:04",
            "kernels": {name: {"warm_us": samples, "check": check, "schedule": "direct"} for name, samples in kernels.items()},
            "peer": {"kernels": {name: {"best_us": best, "bare_us": bare} for name, (best, bare) in peers.items()}}}


class TableTest(unittest.TestCase):
    def test_a_network_is_compared_by_medians_at_both_times(self):
        rows = table.rows_of("resnet-18", network_result())
        self.assertEqual([(r.work, r.value, r.bar, r.met) for r in rows], [
            ("ResNet-18, after 3 min", "0.240", "<= 0.22", False),
            ("ResNet-18, after 6.0 min", "0.150", "<= 0.15", True),
            ("ResNet-18: sum of its tasks", "-9.3%", "within 10%", True),
            ("ResNet-18: tuning, racing", "15.5", ">= 30", False),
            ("resnet-18: outputs", "", "all right", True)])
        self.assertEqual(rows[3].note, "device busy 95% of the time, builders 20%")

    def test_without_peers_there_is_no_verdict(self):
        rows = table.rows_of("resnet-50", network_result(peer={}))
        self.assertEqual((rows[0].ours, rows[0].peer, rows[0].value, rows[0].met), ("150.0 us", "", "", None))

    def test_a_wrong_output_is_never_right(self):
        result = network_result(against_torch={"ok": False, "max_rel_error": 0.5})
        row = table.rows_of("mobilenet-v2", result)[-1]
        self.assertEqual((row.ours, row.met, row.note), ("WRONG", False, "against PyTorch"))

    def test_parts_that_failed_or_were_cut_say_so(self):
        failed = table.rows_of("resnet-50", {"when": "", "finished": False, "failed": "diapason tune ended with 3: no device"})
        self.assertEqual([(r.work, r.note) for r in failed], [("resnet-50: not finished", "diapason tune ended with 3: no device")])
        cut = table.rows_of("resnet-50", network_result(finished=False))
        self.assertEqual((cut[-1].work, cut[-1].note), ("resnet-50: not finished", "the run was cut"))
        self.assertEqual(table.rows_of("resnet-50", {}), [])

    def test_convolutions_are_a_geometric_mean_and_the_worst(self):
        result = kernels_result({"a": [2.0, 3.0, 1.0], "b": [8.0]}, {"a": (20.0, 10.0), "b": (10.0, 9.0)})
        rows = table.rows_of("convs", result)
        self.assertEqual([(r.work, r.value, r.met, r.note) for r in rows[:2]], [
            ("convolutions of ResNet-18, geometric mean of 2", "0.283", False, ""),
            ("convolutions of ResNet-18, the worst", "0.800", False, "b")])

    def test_depthwise_must_beat_the_bare_convolution_everywhere(self):
        rows = table.rows_of("depthwise", kernels_result({"a": [2.0]}, {"a": (10.0, 2.0)}))
        self.assertEqual([(r.value, r.bar, r.met) for r in rows[:2]], [("0.200", "<= 0.22", True), ("1.000", "< 1.00", False)])

    def test_gemm_says_what_was_not_measured(self):
        result = kernels_result({"with 3xTF32": [130.0]}, {cases.GEMM.name: (200.0, 200.0)})
        result["missing"] = {"without 3xTF32": "this diapason has no --strict-fp32"}
        rows = table.rows_of("gemm", result)
        self.assertEqual([(r.work, r.ours, r.value, r.met) for r in rows[:2]], [
            ("GEMM 4096^3 without 3xTF32", "not measured", "", None), ("GEMM 4096^3 with 3xTF32", "130.0 us", "0.650", True)])

    def test_max_autotune_counts_when_it_was_done(self):
        result = network_result(peer={"best_us": 900.0, "compiled_us": 900.0})
        self.assertEqual((table.rows_of("max-autotune", result)[0].value, table.rows_of("max-autotune", result)[0].note),
                         ("0.167", "max-autotune 900.0 us"))
        result = network_result(compile_failed="it was not done in 200 s")
        self.assertEqual(table.rows_of("max-autotune", result)[0].note, "it was not done in 200 s")

    def test_columns_are_aligned_and_rows_become_markdown(self):
        rows = [table.Row("short", "1.0 us", "10.0 us", "0.100", "<= 0.15", True), table.Row("a longer name", "2.0 us", note="why")]
        self.assertEqual(table.text(rows), "short          1.0 us  10.0 us  0.100  <= 0.15  met\n"
                                           "a longer name  2.0 us                                why")
        self.assertEqual(table.markdown(rows).splitlines()[2:], ["| short | 1.0 us | 10.0 us | 0.100 | <= 0.15 | met |  |",
                                                                "| a longer name | 2.0 us |  |  |  |  | why |"])

    def test_the_default_parts_fit_into_25_minutes(self):
        import h200
        self.assertLess(sum(h200.planned_seconds(part, cases.SECONDS) for part in cases.PARTS), 25 * 60)


if __name__ == "__main__":
    unittest.main()
