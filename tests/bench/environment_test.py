"""Environments of packages: finished or not at all, whoever asks, and made once. What runs `venv` and `pip` is a fake."""
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock

import python_environment


class MakeVenvTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name) / "venvs" / "one"
        self.ran = []  # "venv" and what pip was to install
        self.pip_fails = False
        patch = unittest.mock.patch.object(python_environment.subprocess, "run", self.run_program)
        patch.start()
        self.addCleanup(patch.stop)

    def run_program(self, command, check=False):
        self.assertEqual(command[1], "-m")
        time.sleep(0.05)  # in which others may come
        if command[2] == "venv":
            pathlib.Path(command[3]).mkdir(exist_ok=True)
            self.ran.append("venv")
            return subprocess.CompletedProcess(command, 0)
        self.assertEqual([command[0], *command[2:6]], [str(self.folder / "bin" / "python"), "pip", "install", "-q", "--disable-pip-version-check"])
        self.ran.append(command[6:])
        return subprocess.CompletedProcess(command, 1 if self.pip_fails else 0)

    def test_many_callers_make_one(self):
        pythons = []
        callers = [threading.Thread(target=lambda: pythons.append(python_environment.make_venv(self.folder, ["numpy", "onnx"]))) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        self.assertEqual(pythons, [self.folder / "bin" / "python"] * 4)
        self.assertEqual(self.ran, ["venv", ["numpy", "onnx"]])

    def test_one_that_failed_is_finished_by_the_next(self):
        self.pip_fails = True
        with self.assertRaises(SystemExit) as failure:
            python_environment.make_venv(self.folder, ["numpy", "onnx"])
        self.assertEqual(str(failure.exception), f"error: pip could not install numpy, onnx into {self.folder}; it says above why")
        self.pip_fails = False
        self.ran.clear()
        for _ in range(2):
            python_environment.make_venv(self.folder, ["numpy", "onnx"])
        self.assertEqual(self.ran, ["venv", ["numpy", "onnx"]])

    def test_one_of_other_packages_gets_these(self):
        python_environment.make_venv(self.folder, ["numpy"])
        self.ran.clear()
        self.pip_fails = True
        with self.assertRaises(SystemExit):
            python_environment.make_venv(self.folder, ["numpy", "onnx"])
        self.pip_fails = False
        python_environment.make_venv(self.folder, ["numpy"])  # whatever is in it now
        self.assertEqual(self.ran, ["venv", ["numpy", "onnx"], "venv", ["numpy"]])


if __name__ == "__main__":
    unittest.main()
