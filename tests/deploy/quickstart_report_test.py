"""The table at the end of deploy/quickstart.sh."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(os.environ["DIAPASON_DEPLOY"])
# Takes 20 ms with fallback schedules and 12 tuned; both compute the same but for an error.
PROGRAM = """#!/usr/bin/env python3
import json, sys
command, package, *flags = sys.argv[1:]
us = 20000 if package.endswith("fallback") else 12000
if command == "inspect":
    print(json.dumps({"target": "cpu -num-cores=3"}))
elif "--check" in flags:
    print(json.dumps({"check": {"max_abs_error": 2.5e-6}}))
else:
    print(json.dumps({"latency": {"median_us": us}}))
"""
NUMPY = """
class Array:
    def astype(self, name):
        return self
class Random:
    def standard_normal(self, shape):
        return Array()
class random:
    def default_rng(seed):
        return Random()
"""
RUNTIME = """
import time
__version__ = "9.9"
class SessionOptions: pass
class Port:
    def __init__(self, shape):
        self.name, self.type, self.shape = "image", "tensor(float)", shape
class InferenceSession:
    def __init__(self, model, options, providers):
        assert options.intra_op_num_threads == 3 and providers == ["CPUExecutionProvider"]
        self.shape = ["batch", 3] if "dynamic" in model else [1, 3]
    def get_inputs(self):
        return [Port(self.shape)]
    def run(self, outputs, inputs):
        assert set(inputs) == {"image"}
        time.sleep(0.002)
"""


class QuickstartReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "diapason").write_text(PROGRAM, encoding="utf-8")
        (self.folder / "diapason").chmod(0o755)

    def report(self, model, target, *modules):
        found = self.folder / "modules"
        found.mkdir(exist_ok=True)
        for name, text in modules:
            (found / f"{name}.py").write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-B", "-S", DEPLOY / "quickstart_report.py", self.folder / "diapason", "fallback", "tuned", "--model", model,
                               "--target", target], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(found)})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_without_onnx_runtime_it_says_how_to_get_it(self):
        shown = self.report("resnet-18", "cpu")
        self.assertRegex(shown, r"fallback schedules +20\.000 ms +1\.00 +2\.5e-06\n")
        self.assertRegex(shown, r"tuned +12\.000 ms +0\.60 +2\.5e-06\n")
        self.assertIn("tuning made it 1.67 times as fast", shown)
        self.assertIn("ONNX Runtime is not in the table: python3 has no module numpy; pip install onnxruntime onnx", shown)

    def test_a_file_is_compared_with_onnx_runtime(self):
        shown = self.report("model.onnx", "cpu", ("numpy", NUMPY), ("onnxruntime", RUNTIME))
        self.assertRegex(shown, r"ONNX Runtime 9\.9 +[2-9]\.\d+ ms +0\.\d\d\n")
        self.assertNotIn("not in the table", shown)

    def test_what_it_cannot_compare_is_said(self):
        modules = ("numpy", NUMPY), ("onnxruntime", RUNTIME)
        self.assertIn("not in the table: its inputs are not made here: input 'image' is tensor(float) ['batch', 3]", self.report("dynamic.onnx", "cpu", *modules))
        self.assertIn("not in the table: there is no ONNX file of this network", self.report("bert-base", "cpu", *modules))
        self.assertIn("not in the table: it is compared on processors only", self.report("resnet-18", "cuda", *modules))

    @unittest.skipUnless("DIAPASON_PYTHON" in os.environ, "onnx is installed with the Python package's tests")
    def test_the_file_has_the_work_of_the_built_in_network(self):
        path = self.folder / "resnet-18.onnx"
        subprocess.run([os.environ["DIAPASON_PYTHON"], "-B", "-c", "import sys, quickstart_report; quickstart_report.resnet18(sys.argv[1])", path], check=True,
                       env=os.environ | {"PYTHONPATH": str(DEPLOY)})

        def gflop(model):
            shown = subprocess.run([os.environ["DIAPASON_PROGRAM"], "tasks", model, "--target", "cpu -num-cores=1", "--json"], check=True, capture_output=True).stdout
            return sum(task["count"] * task["gflop"] for task in json.loads(shown)["tasks"])

        self.assertAlmostEqual(gflop(path) / gflop("resnet-18"), 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
