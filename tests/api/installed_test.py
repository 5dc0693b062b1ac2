"""libdiapason as its users get it: what it exports, and a program built from an install tree."""

import os
import pathlib
import re
import tempfile
import unittest

from commands import run

BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])
SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
HEADERS = ["compiler.h", "devices.h", "explain.h", "fleet.h", "history.h", "inspect.h", "launch.h", "model.h", "profile.h", "records.h", "report.h", "run.h", "servers.h", "service.h", "tuner.h"]
# Of the public headers: functions of the namespace, and those of classes.
FUNCTIONS = {"AddRecords", "AskFleet", "Build", "CheckHealth", "CheckHistory", "CheckOptions", "CheckRecords", "CopyHistory", "Devices", "ExplainCandidate",
             "ExplainRecord", "ExplanationJson", "ExportHistory", "ExportHistoryToFile", "ExportKernels", "FindDevice", "FleetJson", "HistoryName", "ImportHistory", "InspectModel", "InspectPackage", "IsDatabase", "IsPackage", "JobJson",
             "JobsJson", "ListRecords", "MoveTypeToTarget", "Networks", "NormalizeTarget", "Profile", "PruneHistory", "QueryService", "Run", "RunTracker", "RunWorker", "Serve", "ServePages", "SetLogLevel", "SetProgram", "SizesText",
             "Tasks", "Tune", "Version", "WriteReport"}
METHODS = {"History::Best", "History::Open", "History::Query", "History::Summary", "History::~History", "LaunchedWorkers::status", "LaunchedWorkers::~LaunchedWorkers", "PortInfo::TypeText", "Service::Cancel", "Service::Connect",
           "Service::Delete", "Service::Fleet", "Service::Get", "Service::Jobs", "Service::Launch", "Service::Resume", "Service::Submit", "Service::Wait", "Service::tracker",
           "Service::~Service"}


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diapason_tuner_")
        cls.root = pathlib.Path(cls.scratch.name)
        cls.prefix = cls.root / "prefix"
        for component in ("program", "runtime", "development", "tuner", "tuner_development"):
            run("cmake", "--install", BUILD, "--component", component, "--prefix", cls.prefix)
        cls.library = next(cls.prefix.rglob("libdiapason.so"))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_it_exports_what_the_headers_declare_and_nothing_else(self):
        exported = set()
        for line in run("nm", "--dynamic", "--defined-only", "--demangle", self.library).splitlines():
            _, kind, name = line.split(" ", 2)
            if kind == "A":
                continue  # the version's own name
            match = re.match(r"diapason::api::([\w:~]+)(\[abi:cxx11\])?\(", name)
            self.assertIsNotNone(match, line)
            exported.add(match.group(1))
        self.assertEqual(exported, FUNCTIONS | METHODS)
        text = "".join((SOURCE / "include/diapason" / header).read_text() for header in HEADERS)
        declared = set(re.findall(r"^(?:void|bool|const char\*|(?:std|absl)::[\w:<>]+) (\w+)\(", text, re.MULTILINE))
        self.assertEqual(declared, FUNCTIONS)

    def test_the_soname_has_the_minor_version(self):
        version = re.search(r"project\(diapason VERSION (\d+\.\d+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
        self.assertIn(f"Library soname: [libdiapason.so.{version}]", run("readelf", "--dynamic", self.library))

    def check_program(self, program, **options):
        out = run(program, "gemm", "cpu -num-cores=1", 12, "h.db", "package", cwd=self.root, **options)
        self.assertRegex(out, r"(?m)^gemm_\S+: \S+, [0-9.]+ us$")
        self.assertTrue(out.endswith("built package\n"), out)
        self.assertIn("check ok", run(self.prefix / "bin/diapason", "run", "package", "--check", cwd=self.root))

    def test_the_example_is_built_by_cmake(self):
        folder = self.root / "cmake"
        run("cmake", "-S", SOURCE / "examples", "-B", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", folder, "--target", "tune_and_build")
        self.check_program(folder / "tune_and_build")

    def test_pkg_config_and_errors(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig"), "LD_LIBRARY_PATH": str(self.library.parent)}
        flags = run("pkg-config", "--cflags", "--libs", "diapason", env=environment).split()
        source = self.root / "failing.cc"
        source.write_text("#include <diapason/compiler.h>\n#include <cstdio>\n"
                          "int main() { std::puts(std::string(diapason::api::Tasks({.source = \"none.onnx\"}, \"cpu\").status().message()).c_str()); }\n")
        run(os.environ.get("CXX", "c++"), "-std=c++20", source, *flags, "-o", self.root / "failing")
        self.assertRegex(run(self.root / "failing", env=environment), r"none\.onnx")


if __name__ == "__main__":
    unittest.main()
