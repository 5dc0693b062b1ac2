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
from gpu_table import cases

# Answers by its first words. Notes its calls; a file named after a command makes that command fail.
FAKE = r'''#!/usr/bin/env python3
import json, os, pathlib, sys
home, words = pathlib.Path(__file__).parent, sys.argv[1:]
name = os.path.basename(__file__)
with open(home / "calls", "a") as calls:
    print(name, *words, file=calls)
command = words[0] if name == "diapason" else name
if (home / f"fail-{command}").exists():
    sys.exit("error: " + (home / f"fail-{command}").read_text())
if command == "devices":
    answer = {"devices": [{"name": "Fake GPU", "driver": "1.2", "target": "cuda -arch=sm_90"}]}
elif words == ["tune", "--help"]:
    print((home / "tune-help").read_text() if (home / "tune-help").exists() else "--json")
    sys.exit(0)
elif command == "tune":
    history = pathlib.Path(words[words.index("--history") + 1])
    with open(history, "a") as file:
        print(words[1], words[words.index("--seconds") + 1], file=file)
    answer = {"measured": 90, "seconds": 10.0, "trials_per_s": 9.0, "stages": {"workers": None}}
elif command == "build":
    answer = {}
elif command == "run":
    answer = {"latency_us": {"samples": [100.0, 110.0]}, "estimated_us": 99.0, "check": {"ok": True, "max_rel_error": 1e-7}}
elif command == "history":
    if words[1] == "import":
        pathlib.Path(words[2]).write_text("imported\n")
    print("text")
    sys.exit(0)
elif command == "task_times":
    answer = {"tasks": [{"name": "t", "weight": 1, "schedule": "direct", "warm_us": [2.0], "cold_us": [3.0]}]}
elif command == "peers.py":
    from gpu_table import cases
    kernels = cases.CONVS + cases.DEPTHWISE + [cases.GEMM]
    answer = {"torch": "2.0", "best_us": 1000.0, "kernels": {k.name: {"best_us": 10.0, "bare_us": 4.0} for k in kernels}}
print(json.dumps(answer))
'''


class FlowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("diapason", "task_times", "peers.py"):
            path = self.folder / name
            path.write_text(FAKE)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_h200(self, *words, out="out"):
        """Exit status and what was printed."""
        words = [*words, "--programs", self.folder, "--peers", self.folder / "peers.py", "--out", self.folder / out]
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            status = h200.main(list(map(str, words)))
        return status, shown.getvalue()

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def commands(self):
        return [" ".join(call.split()[:2]) for call in self.calls()]

    def result(self, part, out="out"):
        return json.loads((self.folder / out / f"{part}.json").read_text())

    def test_resnet_18_is_kept_after_three_minutes_and_timed_around_the_peer(self):
        status, shown = self.run_h200("resnet-18", "--seconds-of", "resnet-18=300")
        self.assertEqual(status, 0)
        self.assertEqual(self.commands(), ["diapason devices", "diapason tune", "diapason tune", "diapason build", "diapason build",
                                           "diapason run", "diapason run", "peers.py network", "diapason run", "diapason run"])
        self.assertEqual((self.folder / "out" / "resnet-18-early.db").read_text(), "resnet-18 180\n")
        self.assertEqual((self.folder / "out" / "resnet-18.db").read_text(), "resnet-18 180\nresnet-18 120.0\n")
        self.assertEqual(self.result("resnet-18")["states"]["end"]["samples_us"], [100.0, 110.0, 100.0, 110.0])
        self.assertRegex(shown, r"ResNet-18, after 3 min +105.0 us +1000.0 us +0.105  <= 0.22 +met")
        self.assertRegex(shown, r"ResNet-18, after 5.0 min +105.0 us +1000.0 us +0.105  <= 0.15 +met")
        self.assertIn("Fake GPU, driver 1.2, PyTorch 2.0", shown)

    def test_a_second_run_goes_on_and_makes_one_table(self):
        self.run_h200("resnet-18", "--seconds-of", "resnet-18=200")
        status, shown = self.run_h200("resnet-18", "speed", "--seconds-of", "resnet-18=60", "--history", self.folder / "out", out="second")
        self.assertEqual(status, 0)
        self.assertEqual((self.folder / "second" / "resnet-18.db").read_text(), "resnet-18 180\nresnet-18 20.0\nresnet-18 60.0\n")
        self.assertEqual((self.folder / "second" / "resnet-18-early.db").read_text(), "resnet-18 180\n")
        self.assertIn("ResNet-18, after 4.3 min", shown)
        shown = self.run_h200("gemm", "--history", self.folder / "second", out="third")[1]
        for work in ("ResNet-18, after 4.3 min", "tuning, each trial 300 ms, no race", "GEMM 4096^3 with 3xTF32"):
            self.assertIn(work, shown)

    def test_convolutions_start_from_the_history_of_resnet_18(self):
        self.run_h200("resnet-18", "--seconds-of", "resnet-18=1")
        shown = self.run_h200("convs")[1]
        self.assertRegex(shown, r"convolutions of ResNet-18, geometric mean of 9 +0.200  <= 0.24")
        self.assertEqual((self.folder / "out" / "convs.db").read_text(), "imported\n" + "conv2d 6\n" * 9)
        kernels = self.result("convs")["kernels"]
        self.assertEqual(list(kernels), [kernel.name for kernel in cases.CONVS])
        self.assertEqual(kernels["3x3 s1, 7x7, 512->512"]["warm_us"], [2.0, 2.0])

    def test_no_tuning_takes_histories_as_they_are(self):
        self.run_h200("depthwise", "--seconds-of", "depthwise=0")
        self.assertNotIn("diapason tune", self.commands())
        self.assertIn("--set channels=256 --set size=96 --set multiplier=2 --set kernel=5 --set scale=1 --set relu=1",
                      [call for call in self.calls() if call.startswith("diapason build")][-1])

    def test_gemm_is_also_tuned_strictly_where_the_program_can(self):
        self.assertIn("this diapason has no --strict-fp32", self.run_h200("gemm")[1])
        (self.folder / "tune-help").write_text("  --strict-fp32  Only ...")
        shown = self.run_h200("gemm", out="strict")[1]
        self.assertRegex(shown, r"GEMM 4096\^3 without 3xTF32 +2.0 us +10.0 us +0.200  <= 1.05 +met")
        strict = [call.split()[1] for call in self.calls() if "--strict-fp32" in call and "gemm-strict.db" in call]
        self.assertEqual(strict, ["tune", "build"])

    def test_a_part_that_fails_leaves_the_others_and_is_told(self):
        (self.folder / "fail-peers.py").write_text("no CUDA here")
        status, shown = self.run_h200("squeezenet", "speed")
        self.assertEqual(status, 1)
        self.assertIn("squeezenet: not finished", shown)
        self.assertIn("peers.py network squeezenet1_1 ended with 1: error: no CUDA here", shown)
        self.assertRegex(shown, r"tuning, each trial 300 ms, no race +9.00/s")
        self.assertFalse(self.result("squeezenet")["finished"])

    def test_without_peers_only_our_side_is_shown(self):
        status, shown = self.run_h200("squeezenet", "--no-peers")
        self.assertEqual(status, 0)
        self.assertNotIn("peers.py network", self.commands())
        self.assertRegex(shown, r"SqueezeNet 1.1, after 0.8 min +105.0 us +<= 0.45")

    def test_mistakes_on_the_command_line_name_the_mend(self):
        for words, text in ((["nets"], "there is no part nets; the parts are resnet-18, resnet-50,"),
                            (["--seconds-of", "convs=x"], "convs=x: write it as PART=SECONDS, with one of resnet-18,")):
            shown = io.StringIO()
            with contextlib.redirect_stderr(shown), self.assertRaises(SystemExit):
                h200.main(words)
            self.assertIn(text, shown.getvalue())


if __name__ == "__main__":
    unittest.main()
