"""libdiapason_runtime as its users get it: what it links and exports, and the examples built from an install tree."""

import concurrent.futures
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from commands import run

BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])
EXAMPLES = pathlib.Path(os.environ["DIAPASON_EXAMPLES"])
HEADER = pathlib.Path(os.environ["DIAPASON_HEADER"])
LIBRARY = os.environ["DIAPASON_RUNTIME_LIBRARY"]
PROGRAM = os.environ["DIAPASON_PROGRAM"]
CC = os.environ.get("CC", "cc")

FOREIGN = re.compile(r"grpc|protobuf|sqlite|xgboost|onnx|cuda|cudnn|cublas|OpenCL|nvrtc", re.IGNORECASE)


class Library(unittest.TestCase):
    def test_it_links_nothing_of_the_tuner(self):
        linked = run("ldd", LIBRARY)
        self.assertIn("libabsl", linked)  # so that ldd has said something
        self.assertEqual([line for line in linked.splitlines() if FOREIGN.search(line)], [])

    def test_it_exports_its_functions_with_versions_and_nothing_else(self):
        exported = set()
        for line in run("readelf", "--dyn-syms", "--wide", LIBRARY).splitlines():
            fields = line.split()
            if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and fields[6] != "UND" and fields[4] in ("GLOBAL", "WEAK", "UNIQUE"):
                exported.add(fields[7])
        declared = set(re.findall(r"^DIAPASON_API [^;(]*?\b(diapason_\w+)\(", HEADER.read_text(), re.MULTILINE))
        self.assertGreater(len(declared), 20)
        exported.discard("DIAPASON_RUNTIME_1")  # GNU ld exports the node's name, mold does not
        exported.discard("DIAPASON_RUNTIME_1.1")
        newer = {"diapason_package_load_memory"}
        self.assertEqual(exported, {f"{name}@@DIAPASON_RUNTIME_1" + (".1" if name in newer else "") for name in declared})

    def test_the_soname_has_the_number_of_the_abi(self):
        abi = re.search(r"#define DIAPASON_RUNTIME_ABI (\d+)", HEADER.read_text()).group(1)
        self.assertIn(f"Library soname: [libdiapason_runtime.so.{abi}]", run("readelf", "--dynamic", LIBRARY))

    def test_the_header_is_plain_c(self):
        run(CC, "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", HEADER, "-I", HEADER.parent.parent)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diapason_installed_")
        cls.root = pathlib.Path(cls.scratch.name)
        cls.prefix = cls.root / "prefix"
        for component in ("runtime", "development"):
            run("cmake", "--install", BUILD, "--component", component, "--prefix", cls.prefix)
        # From a place where nothing of the build tree is found by accident.
        cls.package = cls.root / "package"
        run(PROGRAM, "build", "gemm", "--set", "m=16", "--set", "n=16", "--set", "k=16", "--target", "cpu -num-cores=2", "--out",
            cls.package, "--no-check", cwd=cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def library_folder(self):
        (library,) = self.prefix.rglob("libdiapason_runtime.so")
        return library.parent

    def check_output(self, text):
        self.assertRegex(text, r"^loaded \S+ for cpu -num-cores=2 in [0-9.]+ ms\noutput \S+: [0-9x]+ 0 0 0 0\n$")

    def test_only_the_runtime_is_installed(self):
        names = sorted(path.name for path in self.prefix.rglob("*") if not path.is_dir())
        (full,) = [name for name in names if re.fullmatch(r"libdiapason_runtime\.so\.1\.[0-9.]+", name)]
        configurations = [name for name in names if re.fullmatch(r"DiapasonTargets-\w+\.cmake", name)]
        self.assertEqual(len(configurations), 1)
        self.assertEqual(names, sorted(["DiapasonConfig.cmake", "DiapasonConfigVersion.cmake", "DiapasonTargets.cmake", *configurations,
                                        "diapason-runtime.pc", "libdiapason_runtime.so", "libdiapason_runtime.so.1", full, "runtime.h",
                                        "runtime.hpp"]))

    def test_examples_are_built_by_cmake(self):
        folder = self.root / "cmake"
        run("cmake", "-S", EXAMPLES, "-B", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", folder, "--parallel", "2")
        self.check_output(run(folder / "run_package", self.package))
        self.assertRegex(run(folder / "serve_threads", self.package, 3, 50), r"^50 requests by 3 threads, [0-9.]+ per second\n$")
        self.check_server(folder / "serve_http")

    def check_server(self, program):
        with subprocess.Popen([program, self.package, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as server:
            try:
                line = server.stdout.readline()
                address = re.fullmatch(r"gemm for cpu -num-cores=2 listens on (http://127\.0\.0\.1:\d+)\n", line).group(1)
                model = json.loads(self.fetch(f"{address}/model")[1])
                self.assertEqual([(port["dtype"], port["shape"]) for port in model["inputs"] + model["outputs"]], [("float32", [16, 16])] * 2)
                identity = struct.pack("256f", *(float(i % 17 == 0) for i in range(256)))
                status, weights = self.fetch(f"{address}/run", identity)
                self.assertEqual((status, len(weights)), (200, 1024))
                # What is twice the input gives twice the output; four clients at once get the same.
                double = struct.pack("256f", *(2 * float(i % 17 == 0) for i in range(256)))
                with concurrent.futures.ThreadPoolExecutor(4) as clients:
                    for _, answer in clients.map(self.fetch, [f"{address}/run"] * 20, [double] * 20):
                        self.assertEqual(struct.unpack("256f", answer), tuple(2 * x for x in struct.unpack("256f", weights)))
                self.assertEqual(self.fetch(f"{address}/run", b"abc"),
                                 (400, b"the inputs are 1024 bytes, and the request has 3; GET /model shows types and shapes\n"))
                server.terminate()
                self.assertEqual(server.wait(20), 0)
            finally:
                server.kill()

    def fetch(self, url, body=None):
        try:
            with urllib.request.urlopen(url, body, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def test_the_c_example_is_built_by_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.library_folder() / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "diapason-runtime", env=environment).split()
        program = self.root / "run_package"
        run(CC, "-std=c11", "-D_POSIX_C_SOURCE=199309L", "-Wall", "-Wextra", "-Werror", EXAMPLES / "run_package.c", *flags, "-o", program)
        environment["LD_LIBRARY_PATH"] = str(self.library_folder())
        self.check_output(run(program, self.package, env=environment))

    def test_errors_come_as_text(self):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.library_folder())}
        program = self.root / "failing"
        run(CC, EXAMPLES / "run_package.c", f"-I{self.prefix}/include", f"-L{self.library_folder()}", "-ldiapason_runtime", "-o", program)
        done = subprocess.run([program, "none"], capture_output=True, text=True, env=environment, timeout=100)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "run_package: there is no file or folder 'none'; name a folder or a .dpk file made by 'diapason build'\n")

    def test_the_program_has_manual_pages_and_completions(self):
        prefix = self.root / "program"
        run("cmake", "--install", BUILD, "--component", "program", "--prefix", prefix)
        self.assertRegex(run(prefix / "bin/diapason", "--version"), r"^diapason [0-9.]+\ncommit \S+\nbuilt ")
        for name in ("diapason.1", "diapason-tune.1", "diapason-export-kernels.1"):
            self.assertIn(".SH SYNOPSIS", (prefix / "share/man/man1" / name).read_text())
        for name in ("bash-completion/completions/diapason", "zsh/vendor-completions/_diapason", "fish/vendor_completions.d/diapason.fish"):
            self.assertIn("export-kernels", (prefix / "share" / name).read_text())


if __name__ == "__main__":
    unittest.main()
