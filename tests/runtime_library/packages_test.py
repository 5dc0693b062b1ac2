"""The Debian packages that cpack makes: what they hold, what they depend on, and that the program runs unpacked."""

import os
import pathlib
import tempfile
import unittest

from commands import run

BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])


class DebianPackages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diapason_debs_")
        cls.root = pathlib.Path(cls.scratch.name)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.root / "out", cwd=cls.root)
        cls.packages = {run("dpkg-deb", "-f", path, "Package").strip(): path for path in (cls.root / "out").glob("*.deb")}
        for path in cls.packages.values():
            run("dpkg-deb", "-x", path, cls.root / "system")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_there_is_one_for_each_component(self):
        self.assertEqual(sorted(self.packages), ["diapason", "libdiapason-dev", "libdiapason-runtime1"])

    def test_they_depend_on_what_they_need(self):
        depends = {name: run("dpkg-deb", "-f", path, "Depends") for name, path in self.packages.items()}
        self.assertIn("libxgboost", depends["diapason"])
        self.assertIn("libminizip1", depends["libdiapason-runtime1"])
        self.assertNotIn("grpc", depends["libdiapason-runtime1"])
        version = run("dpkg-deb", "-f", self.packages["diapason"], "Version").strip()
        self.assertEqual(depends["libdiapason-dev"].strip(), f"libdiapason-runtime1 (= {version})")

    def test_what_is_unpacked_runs(self):
        usr = self.root / "system/usr"
        self.assertTrue(run(usr / "bin/diapason", "--version").startswith("diapason "))
        package = self.root / "package.dpk"
        run(usr / "bin/diapason", "build", "gemm", "--set", "m=16", "--set", "n=16", "--set", "k=16", "--target", "cpu -num-cores=1",
            "--out", package, "--no-check")
        program = self.root / "run_package"
        libraries = next(usr.rglob("libdiapason_runtime.so")).parent
        examples = pathlib.Path(os.environ["DIAPASON_EXAMPLES"])
        run(os.environ.get("CC", "cc"), examples / "run_package.c", f"-I{usr / 'include'}", f"-L{libraries}", "-ldiapason_runtime", "-o", program)
        out = run(program, package, env={**os.environ, "LD_LIBRARY_PATH": str(libraries)})
        self.assertRegex(out, r"^loaded \S+ for cpu -num-cores=1 in ")


if __name__ == "__main__":
    unittest.main()
