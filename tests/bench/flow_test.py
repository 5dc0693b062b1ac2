"""bench/h200.py from its command line on, over fake programs that answer as the real ones do."""
import contextlib
import io
import json
import os
import pathlib
import stat
import tempfile
import unittest

import h200
from gpu_table import programs

# Answers by its first words. Notes its calls; a file named after a command makes that command fail.
FAKE = r'''#!/usr/bin/env python3
import json, os, pathlib, sys
home, words = pathlib.Path(__file__).parent, sys.argv[1:]
name = os.path.basename(__file__)
with open(home / "calls", "a") as calls:
    print(name, *words, file=calls)
command = words[0] if name == "diapason" else name
if (home / f"fail-{command}").exists() and "--help" not in words:
    sys.exit("error: " + (home / f"fail-{command}").read_text())
if command == "devices":
    answer = {"devices": [{"device": "Fake GPU", "driver": "1.2", "target": "cuda -arch=sm_90"}]}
elif words[1:] == ["--help"]:
    print((home / "help").read_text() if (home / "help").exists() else "--json")
    sys.exit(0)
elif command == "tune":
    history = pathlib.Path(words[words.index("--history") + 1])
    assert not history.exists(), "tuning begins from nothing"
    history.write_text("")
    answer = {"measured": 90, "elapsed_s": 10.0, "trials_per_s": 9.0}
elif command in ("build", "records"):
    answer = {}
elif command == "run":
    answer = {"throughput": {"samples_us": [100.0, 110.0]}, "tasks_us": 99.0, "estimated_us": 104.0, "check": {"ok": True, "max_rel_error": 1e-7}}
    if "--output-dir" in words:
        from gpu_table import npy
        folder = pathlib.Path(words[words.index("--output-dir") + 1])
        folder.mkdir(exist_ok=True)
        npy.write(folder / "output.npy", (1, 2), [1.0, 2.0 if not (home / "wrong").exists() else 2.5])
elif command == "task_times":
    answer = {"tasks": [{"name": "t", "weight": 1, "schedule": "direct", "warm_us": [2.0], "cold_us": [3.0]}]}
print(json.dumps(answer))
'''

# The baseline's process: answers each line. Files fail-REQUEST, end-REQUEST and hang-REQUEST make it do that.
FAKE_BASELINE = r'''#!/usr/bin/env python3
import json, pathlib, sys, time
from gpu_table import cases, npy
home = pathlib.Path(__file__).parent
assert sys.argv[1:] == ["serve"]
with open(home / "calls", "a") as calls:
    print("baseline starts", file=calls)
for line in sys.stdin:
    words = json.loads(line)
    with open(home / "calls", "a") as calls:
        print("baseline", *words, file=calls)
    if (home / f"end-{words[0]}").exists():
        sys.exit(1)
    if (home / f"hang-{words[0]}").exists():
        time.sleep(60)
    answer = {"torch": "2.0", "best_us": 1000.0, "variants": {"nchw": 1000.0, "nhwc": 1100.0}}
    if (home / f"fail-{words[0]}").exists():
        answer = {"error": (home / f"fail-{words[0]}").read_text()}
    elif words[0] == "compiled":
        answer = {"best_us": 700.0, "variants": {"compiled": 700.0}, "seconds": 30.0}
    elif words[0] == "kernels":
        answer = {"kernels": {k.name: {"best_us": 10.0, "variants": {"nhwc fused": 10.0}} for k in cases.CONVS + cases.DEPTHWISE + cases.GEMMS_HALF + cases.GEMM_INT8 + [cases.GEMM]}}
    elif words[0] == "export":
        pathlib.Path(words[2]).write_text("model")
        for name in ("image", "expected"):
            npy.write(pathlib.Path(words[2]).parent / f"{name}.npy", (1, 2), [1.0, 2.0])
    print(json.dumps(answer), flush=True)
'''


class FlowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("diapason", FAKE), ("task_times", FAKE), ("baselines.py", FAKE_BASELINE)):
            path = self.folder / name
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_h200(self, *words, out="out"):
        """Exit status and what was printed."""
        words = [*words, "--programs", self.folder, "--baselines", self.folder / "baselines.py", "--out", self.folder / out]
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            status = h200.main(list(map(str, words)))
        return status, shown.getvalue()

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def commands(self):
        return [" ".join(call.split()[:2]) for call in self.calls() if "--help" not in call]

    def result(self, part, out="out"):
        return json.loads((self.folder / out / "results.json").read_text())[part]

    def test_a_network_is_tuned_once_in_each_arithmetic_and_timed_around_the_baseline(self):
        status, shown = self.run_h200("squeezenet")
        self.assertEqual(status, 0, shown)
        one = ["diapason tune", "diapason build", "diapason run"]
        self.assertEqual(self.commands(), ["diapason devices", *one, *one, "baseline starts", "baseline network", "diapason run", "diapason run"])
        tuned = [call for call in self.calls() if call.startswith("diapason tune") and "--help" not in call]
        self.assertRegex(tuned[0], "--seconds 25 --json$")
        self.assertRegex(tuned[1], "--seconds 12 --strict-fp32 --json$")
        self.assertEqual([row["samples_us"] for row in self.result("squeezenet")["rows"].values()], [[100.0, 110.0] * 2] * 2)
        self.assertRegex(shown, r"SqueezeNet 1.1 +25 s +105.0 us +1000.0 us +0.105 +-5.7% +-1.0%  PyTorch nchw, 9 trials/s")
        self.assertRegex(shown, r"SqueezeNet 1.1, strict fp32 +12 s +105.0 us +1000.0 us")
        self.assertRegex(shown, "Fake GPU, driver 1.2, PyTorch 2.0, build [0-9a-f]{12}")
        self.assertIn("| SqueezeNet 1.1 | 25 s |", (self.folder / "out" / "table.md").read_text())
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()), ["log.txt", "results.json", "table.md"])

    def test_the_baseline_of_resnet_is_also_compiled_and_the_fastest_counts(self):
        shown = self.run_h200("resnet-18")[1]
        self.assertRegex(shown, r"ResNet-18 +40 s +105.0 us +700.0 us +0.150 .*PyTorch compiled")
        self.assertEqual(self.result("resnet-18")["baseline"]["compile_seconds"], 30.0)

    def test_a_baseline_that_cannot_be_compiled_still_counts_eager(self):
        (self.folder / "fail-compiled").write_text("RuntimeError: no compiler")
        status, shown = self.run_h200("resnet-18")
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"ResNet-18 +40 s +105.0 us +1000.0 us")
        self.assertIn("the baseline's `compiled resnet18 --batch 1` failed: RuntimeError: no compiler", shown)

    def test_half_precision_is_asked_of_both_sides(self):
        status, shown = self.run_h200("mobilenet-v2-half", "gemms-half")
        self.assertEqual(status, 0, shown)
        ours = [call for call in self.calls() if call.startswith(("diapason tune", "diapason build")) and "--help" not in call]
        self.assertEqual([call for call in ours if "--dtype float16" not in call], [])
        self.assertEqual(len(ours), 12)
        self.assertIn("baseline network mobilenet_v2 --batch 1 --dtype float16", self.calls())
        self.assertRegex(shown, r"MobileNet-v2, fp16 +165 s +105.0 us +1000.0 us")
        builds = [call for call in ours if call.startswith("diapason build")]
        self.assertIn("--refine 25", builds[0], "a network is refined")
        self.assertNotIn("--no-check", builds[0], "which is checked for that")
        self.assertFalse([call for call in builds[1:] if "--refine" in call], "kernels are not")
        self.assertRegex(shown, r"GEMM 128x768x768, fp16 +40 s +2.0 us +10.0 us +0.200")

    def test_the_best_records_of_networks_are_kept_where_asked(self):
        status, shown = self.run_h200("mobilenet-v2-half", "gemm-int8", "--records", self.folder / "best.jsonl")
        self.assertEqual(status, 0, shown)
        kept = [call for call in self.calls() if call.startswith("diapason records")]
        self.assertEqual(len(kept), 1)
        self.assertRegex(kept[0], r"^diapason records add \S+/mobilenet-v2-half-0.db --out \S+/best.jsonl --keep 1$")

    def test_histories_are_kept_where_asked_and_never_added_to(self):
        status, shown = self.run_h200("gemm-int8", "--histories", self.folder / "histories")
        self.assertEqual(0, status, shown)
        self.assertEqual(["gemm-int8-0.db"], [path.name for path in (self.folder / "histories").iterdir()])
        status, shown = self.run_h200("gemm-int8", "--histories", self.folder / "histories", out="again")
        self.assertEqual(1, status)
        self.assertIn("gemm-int8-0.db exists", shown)

    def test_integers_are_asked_of_both_sides(self):
        status, shown = self.run_h200("gemm-int8")
        self.assertEqual(status, 0, shown)
        ours = [call for call in self.calls() if call.startswith(("diapason tune", "diapason build")) and "--help" not in call]
        self.assertEqual([call for call in ours if "--set int8=1" not in call], [])
        self.assertIn("baseline kernels gemm-int8", self.calls())
        self.assertRegex(shown, r"GEMM 4096\^3, int8 +40 s +2.0 us +10.0 us +0.200")

    def test_networks_of_torchvision_are_exported_and_compared_with_it(self):
        status, _ = self.run_h200("densenet-121")
        self.assertEqual(status, 0)
        self.assertEqual(self.result("densenet-121")["rows"]["strict fp32"]["against_torch"], {"ok": True, "max_rel_error": 0.0})
        (self.folder / "wrong").write_text("")
        status, shown = self.run_h200("densenet-121", out="wrong-out")
        self.assertEqual(status, 1)
        self.assertRegex(shown, "densenet-121: outputs +WRONG +default, against PyTorch, strict fp32, against PyTorch")

    def test_gemm_has_a_row_without_strassen(self):
        shown = self.run_h200("gemm")[1]
        self.assertRegex(shown, r"GEMM 4096\^3, strict fp32, without Strassen +10 s +2.0 us +10.0 us +0.200")
        flags = [call.split("--json")[0].split("--out")[0] for call in self.calls() if "--without strassen" in call and "tune" in call]
        self.assertEqual(["--strict-fp32" in call for call in flags], [False, True])

    def test_kernels_are_tuned_for_operands_in_the_caches_and_networks_are_not(self):
        self.run_h200("gemm", "squeezenet")
        warm = {"gemm": set(), "squeezenet_v1.1": set()}
        for call in self.calls():
            if call.startswith(("diapason tune", "diapason build")) and "--help" not in call:
                warm[call.split()[2]].add("--target cuda -caches=warm --" in call)
        self.assertEqual(warm, {"gemm": {True}, "squeezenet_v1.1": {False}})

    def test_a_build_is_not_checked_twice(self):
        (self.folder / "help").write_text("  --no-check  Only ...")
        self.run_h200("gemm")
        self.assertTrue(all("--no-check" in call for call in self.calls() if call.startswith("diapason build gemm")))

    def test_calls_become_one_table(self):
        self.assertEqual(self.run_h200("--call", 1, out="first")[0], 0)
        self.assertEqual(self.run_h200("--call", 2, out="second")[0], 0)
        begun = len(self.calls())
        status, shown = self.run_h200("--merge", self.folder / "first", self.folder / "second", out="both")
        self.assertEqual((status, len(self.calls())), (0, begun))
        for work in ("ResNet-50, batch 16, strict fp32", "GoogLeNet", "EfficientNet-B0", "DenseNet-121, strict fp32",
                     "GEMM 4096^3, without Strassen"):
            self.assertIn(f"| {work} |", (self.folder / "both" / "table.md").read_text())
            self.assertIn(work, shown)

    def test_a_part_is_measured_once_and_with_one_build(self):
        self.run_h200("gemm")
        with self.assertRaisesRegex(SystemExit, "out has gemm already, and a part is measured once; name a new folder with --out"):
            self.run_h200("gemm")
        with open(self.folder / "diapason", "a") as file:
            print("# another build", file=file)
        with self.assertRaisesRegex(SystemExit, "this diapason is of build [0-9a-f]+, the parts here are of build"):
            self.run_h200("squeezenet")

    def test_a_part_that_fails_leaves_the_others_and_is_told(self):
        (self.folder / "end-network").write_text("")
        status, shown = self.run_h200("squeezenet", "gemm")
        self.assertEqual(status, 1)
        self.assertIn("squeezenet: not finished", shown)
        self.assertIn("the baseline ended at its request `network squeezenet1_1 --batch 1`; see log.txt", shown)
        self.assertRegex(shown, r"GEMM 4096\^3 +10 s +2.0 us +10.0 us +0.200")  # a new baseline answered
        self.assertFalse(self.result("squeezenet")["finished"])

    def test_a_program_that_fails_is_quoted(self):
        (self.folder / "fail-build").write_text("no space left")
        status, shown = self.run_h200("gemm")
        self.assertEqual(status, 1)
        self.assertIn("diapason build gemm ended with 1: error: no space left", shown)

    def test_a_baseline_that_hangs_is_ended(self):
        (self.folder / "hang-kernels").write_text("")
        baseline = programs.Baseline(self.folder / "baselines.py", self.folder / "log.txt")
        with self.assertRaisesRegex(programs.Failed, "the baseline's `kernels gemm` was not done in 1 s"):
            baseline.ask("kernels", "gemm", timeout=1)
        self.assertEqual(baseline.ask("network", "x")["best_us"], 1000.0)
        baseline.close()

    def test_without_baselines_only_our_side_is_shown(self):
        status, shown = self.run_h200("squeezenet", "--no-baselines")
        self.assertEqual(status, 0)
        self.assertNotIn("baseline starts", self.commands())
        self.assertRegex(shown, r"SqueezeNet 1.1 +25 s +105.0 us +-5.7%")

    def test_the_plan_measures_nothing(self):
        status, shown = self.run_h200("--plan", "--call", 2)
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"gemm +40 s of tuning, +80 s in all\nsum +214 s of tuning, +412 s in all")
        self.assertFalse((self.folder / "calls").exists())

    def test_mistakes_on_the_command_line_name_the_fix(self):
        for words, text in ((["nets"], "there is no part nets; the parts are resnet-18, resnet-50,"),
                            (["gemm", "--call", "1"], "--call names parts already; leave the parts out, or --call")):
            shown = io.StringIO()
            with contextlib.redirect_stderr(shown), self.assertRaises(SystemExit):
                h200.main(words)
            self.assertIn(text, shown.getvalue())


if __name__ == "__main__":
    unittest.main()
