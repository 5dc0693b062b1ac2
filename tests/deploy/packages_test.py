"""The Debian packages that cpack makes: what they hold, what they depend on, and that what is unpacked works."""

import os
import pathlib
import tempfile
import unittest

from commands import run

BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])
SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
EXAMPLES = SOURCE / "examples"
PYTHON = os.environ.get("DIAPASON_PYTHON")  # one with NumPy, where the Python package is built
LIBRARY = "libdiapason0.1"
GEMM = ["--set", "m=16", "--set", "n=16", "--set", "k=16"]
RUN_IN_PYTHON = """
import sys
import numpy as np
import diapason as dp
output = dp.load(sys.argv[1])(np.ones((16, 16), np.float32))
print(dp.__file__, output.size, len(dp.tasks("gemm", "cpu -num-cores=1", options={"m": 16, "n": 16, "k": 16})))
"""


class DebianPackages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diapason_debs_")
        cls.root = pathlib.Path(cls.scratch.name)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.root / "out", cwd=cls.root, timeout=300)
        cls.packages = {run("dpkg-deb", "-f", path, "Package").strip(): path for path in (cls.root / "out").glob("*.deb")}
        for path in cls.packages.values():
            run("dpkg-deb", "-x", path, cls.root / "system")
        cls.usr = cls.root / "system/usr"
        cls.libraries = next(cls.usr.rglob("libdiapason_runtime.so")).parent
        cls.environment = {"PATH": os.environ["PATH"], "HOME": str(cls.root), "LD_LIBRARY_PATH": str(cls.libraries)}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_there_is_one_for_each_component(self):
        self.assertEqual(sorted(self.packages), sorted(["diapason", "libdiapason-dev", "libdiapason-runtime1", "libdiapason-tuner-dev", LIBRARY]
                                                       + ["python3-diapason"] * bool(PYTHON)))

    def test_they_depend_on_what_they_need(self):
        depends = {name: run("dpkg-deb", "-f", path, "Depends").strip() for name, path in self.packages.items()}
        version = run("dpkg-deb", "-f", self.packages["diapason"], "Version").strip()
        self.assertIn("libxgboost", depends["diapason"])
        self.assertIn("libminizip1", depends["libdiapason-runtime1"])
        self.assertNotIn("grpc", depends["libdiapason-runtime1"])
        self.assertEqual(depends["libdiapason-dev"], f"libdiapason-runtime1 (= {version})")
        self.assertIn("libgrpc", depends[LIBRARY])
        self.assertIn(f"diapason (= {version})", depends[LIBRARY])
        self.assertEqual(depends["libdiapason-tuner-dev"], f"{LIBRARY} (= {version}), libdiapason-dev (= {version}), libabsl-dev")
        if PYTHON:
            self.assertRegex(depends["python3-diapason"], r"python3 \(>= 3\.\d+\), python3 \(<< 3\.\d+\)")
            for other in ("python3-numpy", f"diapason (= {version})", "libdiapason-runtime1 (>= ", "libgrpc"):
                self.assertIn(other, depends["python3-diapason"])

    def test_no_two_have_the_same_file(self):
        owners = {}
        for name, path in self.packages.items():
            for line in run("dpkg-deb", "-c", path).splitlines():
                if not line.startswith("d"):
                    owners.setdefault(line.split()[5], []).append(name)
        self.assertGreater(len(owners), 50)
        self.assertEqual({file: names for file, names in owners.items() if len(names) > 1}, {})

    def test_the_program_has_the_ready_made_records(self):
        files = run("dpkg-deb", "-c", self.packages["diapason"])
        records = [str(path.relative_to(SOURCE / "share/records")) for path in (SOURCE / "share/records").glob("*/*.jsonl")]
        self.assertIn("cuda/h100-float32.jsonl", records)
        for name in records:
            self.assertIn(f" ./usr/share/diapason/records/{name}\n", files)
        self.assertRegex(run(self.usr / "bin/diapason", "records", "list", env=self.environment), r"(?m)^cuda -arch=sm_90 ")

    def build_gemm(self, name):
        package = self.root / name
        run(self.usr / "bin/diapason", "build", "gemm", *GEMM, "--target", "cpu -num-cores=1", "--out", package, "--no-check")
        return package

    def test_what_is_unpacked_runs(self):
        self.assertTrue(run(self.usr / "bin/diapason", "--version").startswith("diapason "))
        program = self.root / "run_package"
        run(os.environ.get("CC", "cc"), EXAMPLES / "run_package.c", f"-I{self.usr / 'include'}", f"-L{self.libraries}", "-ldiapason_runtime", "-o", program)
        out = run(program, self.build_gemm("package.dpk"), env=self.environment)
        self.assertRegex(out, r"^loaded \S+ for cpu -num-cores=1 in ")

    def check_tuning(self, program, folder):
        folder.mkdir()
        out = run(program, "gemm", "cpu -num-cores=1", 2, "h.db", "package", cwd=folder, env=self.environment)
        self.assertTrue(out.endswith("built package\n"), out)
        self.assertIn("check ok", run(self.usr / "bin/diapason", "run", "package", "--check", cwd=folder))

    def test_the_example_of_libdiapason_is_built_by_cmake(self):
        folder = self.root / "cmake"
        run("cmake", "-S", EXAMPLES, "-B", folder, f"-DCMAKE_PREFIX_PATH={self.usr}")
        run("cmake", "--build", folder, "--target", "tune_and_build")
        self.check_tuning(folder / "tune_and_build", self.root / "tuned_cmake")

    def test_the_example_of_libdiapason_is_built_by_pkg_config(self):
        environment = {**self.environment, "PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "diapason", env=environment).split()
        program = self.root / "tune_and_build"
        run(os.environ.get("CXX", "c++"), "-std=c++20", EXAMPLES / "tune_and_build.cc", *flags, "-o", program)
        self.check_tuning(program, self.root / "tuned_pkg_config")

    @unittest.skipUnless(PYTHON, "built without Python")
    def test_python_imports_the_package_and_runs_it(self):
        site = self.usr / "lib/python3/dist-packages"
        environment = {**self.environment, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        out = run(PYTHON, "-c", RUN_IN_PYTHON, self.build_gemm("of_python"), cwd=self.root, env=environment).split()
        self.assertEqual(out, [str(site / "diapason/__init__.py"), "256", "1"])
        self.assertRegex(run(PYTHON, "-m", "diapason", "--version", env=environment), r"^diapason [0-9.]+")
        entry = next(site.glob("diapason-*.dist-info")) / "entry_points.txt"
        self.assertIn("diapason = diapason.torch_backend:compile_graph", entry.read_text())


if __name__ == "__main__":
    unittest.main()
