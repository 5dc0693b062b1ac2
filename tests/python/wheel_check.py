"""The wheel of deploy/wheel.sh, installed apart from the build tree: what it links, its metadata, and that it works."""

import os
import pathlib
import re
import sys
import tempfile
import unittest

from commands import run

# What any Linux has: the C library's, the C++ runtime and zlib, which wheels may leave out (PEP 600).
OF_THE_SYSTEM = re.compile(r"^(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|z))\.so\.[0-9]+$")
SMALL = """
import sys
import diapason as dp
gemm = {"options": {"m": 32, "n": 32, "k": 32}}
tuned = dp.tune("gemm", "cpu -num-cores=1", history="h.db", trials=2, progress=False, min_repeat_ms=1, **gemm)
assert tuned.progress.trials == 2
dp.build("gemm", "cpu -num-cores=1", out="package", history="h.db", **gemm)
print(dp.__file__, *(port.name for port in dp.load("package").inputs))
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diapason_wheel_")
        cls.folder = pathlib.Path(cls.scratch.name)
        made = run("bash", pathlib.Path(os.environ["DIAPASON_SOURCE"]) / "deploy/wheel.sh", "--build", os.environ["DIAPASON_BUILD"],
                   "--out", cls.folder / "out", timeout=200).strip()
        cls.wheel = pathlib.Path(made)
        cls.site = cls.folder / "site"
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", cls.site, cls.wheel)
        cls.environment = {"PATH": os.environ["PATH"], "HOME": str(cls.folder), "PYTHONPATH": str(cls.site), "PYTHONDONTWRITEBYTECODE": "1"}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_it_is_for_many_linuxes(self):
        self.assertRegex(self.wheel.name, r"^diapason-[0-9.]+-cp3\d+-cp3\d+-manylinux_2_\d+_x86_64\.whl$")

    def test_it_links_its_own_libraries_and_those_of_any_system(self):
        linked = 0
        for path in self.site.rglob("*"):
            if not path.is_file() or path.is_symlink() or path.read_bytes()[:4] != b"\x7fELF":
                continue
            for line in run("ldd", path).splitlines():
                name, _, place = line.strip().partition(" => ")
                if not place or OF_THE_SYSTEM.match(name):
                    continue
                linked += 1
                self.assertTrue(place.startswith(str(self.site)), f"{path.name}: {line}")
        self.assertGreater(linked, 50)

    def test_it_tunes_builds_and_runs(self):
        out = run(sys.executable, "-c", SMALL, cwd=self.folder, env=self.environment).split()
        self.assertTrue(out[0].startswith(str(self.site)), out)
        self.assertEqual(len(out), 2)

    def test_it_has_the_command_and_the_ready_made_records(self):
        self.assertRegex(run(sys.executable, "-m", "diapason", "--version", env=self.environment), r"^diapason [0-9.]+")
        self.assertTrue((self.site / "bin/diapason").exists())
        self.assertRegex(run(sys.executable, "-m", "diapason", "records", "list", env=self.environment), r"(?m)^cuda -arch=sm_90 ")

    def test_torch_finds_the_backend(self):
        entry = next(self.site.glob("diapason-*.dist-info")) / "entry_points.txt"
        self.assertIn("diapason = diapason.torch_backend:compile_graph", entry.read_text())


if __name__ == "__main__":
    unittest.main()
