#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "api/npy.h"
#include "base/environment.h"
#include "base/run_program.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/fill.h"
#include "gmock/gmock.h"
#include "tests/cli/process.h"
#include "tests/cli/testing.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

constexpr char kCpu[] = "cpu -num-cores=2";

// Convolutions, whose weights are packed by prologues, a residual addition and a product, of any number of rows.
std::string Model() {
  const auto random = [](std::vector<int64_t> shape, uint64_t seed) {
    Array array(DType::kFloat32, std::move(shape));
    FillRandom(array, seed);
    return array;
  };
  ModelBuilder m(17);
  m.Input("x", {"batch", 16, 8, 8});
  m.Initializer("w", random({16, 16, 3, 3}, 1)).Initializer("d", random({16, 5}, 2));
  const std::pair<std::string, OnnxValue> pads = {"pads", std::vector<int64_t>{1, 1, 1, 1}};
  m.Node("Conv", {"x", "w"}, {"a"}, {pads}).Node("Relu", {"a"}, {"b"}).Node("Conv", {"b", "w"}, {"c"}, {pads});
  m.Node("Add", {"x", "c"}, {"e"}).Node("GlobalAveragePool", {"e"}, {"f"}).Node("Flatten", {"f"}, {"g"});
  m.Node("MatMul", {"g", "d"}, {"scores"}).Output("scores").Output("e");
  return m.Bytes();
}

// The project that export-kernels writes, built as its reader would: without anything of ours.
class ExportKernelsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    std::ofstream(Path("net.onnx"), std::ios::binary) << Model();
  }
  void Succeed(const std::vector<std::string>& args) {
    const CliResult result = Cli(args);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  CliResult Build(const std::string& target, const std::string& out = "p", const std::string& sizes = "2") {
    return Cli(
        {"build", Path("net.onnx"), "--target", target, "--dim", "batch=" + sizes, "--out", Path(out), "--no-check"});
  }
  CliResult Export(const std::string& package, const std::string& to, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"export-kernels", Path(package), "--out", Path(to)};
    args.insert(args.end(), more.begin(), more.end());
    return Cli(args);
  }
  // What the program prints; a failure of the test if it fails.
  std::string Run(std::vector<std::string> args) {
    const absl::StatusOr<ProgramResult> done =
        RunProgram({.args = std::move(args), .environment = CleanEnvironment(), .one_output = true});
    EXPECT_TRUE(done.ok()) << done.status();
    if (!done.ok()) return "";
    EXPECT_EQ(done->exit_code, 0) << done->output;
    return done->output;
  }
  // Whether "cmake" is here.
  static bool HasCmake() {
    return RunProgram({.args = {"cmake", "--version"}, .environment = CleanEnvironment()}).ok();
  }
  void BuildProject(const std::string& folder) {
    Run({"cmake", "-S", folder, "-B", folder + "/build", "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"});
    Run({"cmake", "--build", folder + "/build"});
  }
  // The exported program and `diapason run` give the same bytes.
  void ExpectSameOutputs(const std::string& program) {
    Array x(DType::kFloat32, {2, 16, 8, 8});
    FillRandom(x, 7);
    std::ofstream(Path("x.npy"), std::ios::binary) << api::SerializeNpy(x);
    Run({program, "x=" + Path("x.npy"), "--output-dir", Path("exported"), "--repeat", "2"});
    Succeed({"run", Path("p"), "--input", "x=" + Path("x.npy"), "--output-dir", Path("ours")});
    for (const char* name : {"scores.npy", "e.npy"}) {
      EXPECT_GT(ReadText(Path("ours/") + name).size(), 128);
      EXPECT_EQ(ReadText(Path("exported/") + name), ReadText(Path("ours/") + name)) << name;
    }
  }
};

TEST_F(ExportKernelsTest, ACpuExportComputesTheSameBits) {
  if (!HasCmake()) GTEST_SKIP() << "there is no cmake here";
  ASSERT_EQ(Build(kCpu).code, 0);
  const CliResult exported = Export("p", "e", {"--name", "net"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr(" for cpu -num-cores=2 to " + Path("e") + "\nnext: cmake -S "));
  BuildProject(Path("e"));
  ExpectSameOutputs(Path("e/build/run_net"));
  const CliResult again = Export("p", "e");
  ExpectError(again, "'" + Path("e") + "' is there already; give --out a new name, or an empty folder");
}

// The whole way to another architecture: what is built here for it is exported, compiled by the cross compiler and run
// under qemu. Outputs are compared with a tolerance, since the schedules are others.
TEST_F(ExportKernelsTest, AnExportForArmComputesTheSameUnderQemu) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "for this machine the target is no other architecture";
#endif
  const std::string triple = "aarch64-linux-gnu", target = "cpu -mtriple=" + triple + " -mcpu=neoverse-n1 -num-cores=2";
  for (const std::string& program : {std::string("cmake"), triple + "-gcc", std::string("qemu-aarch64")})
    if (!RunProgram({.args = {program, "--version"}, .environment = CleanEnvironment()}).ok())
      GTEST_SKIP() << "there is no " << program << " here";
  const CliResult built =
      Cli({"build", Path("net.onnx"), "--target", target, "--dim", "batch=2", "--out", Path("arm")});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_THAT(built.err, HasSubstr("the package can be neither verified nor timed here: target '" + target +
                                   "' is for " + triple + " and this machine is x86-64"));
  const CliResult refused = Cli({"run", Path("arm")});
  ExpectError(refused, "target '" + target + "' is for " + triple +
                           " and this machine is x86-64: run and measure it on such a machine");
  ASSERT_EQ(Export("arm", "e", {"--name", "net"}).code, 0);
  const std::string folder = Path("e");
  Run({"cmake", "-S", folder, "-B", folder + "/build", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_SYSTEM_NAME=Linux",
       "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_C_COMPILER=" + triple + "-gcc"});
  Run({"cmake", "--build", folder + "/build"});
  Array x(DType::kFloat32, {2, 16, 8, 8});
  FillRandom(x, 7);
  std::ofstream(Path("x.npy"), std::ios::binary) << api::SerializeNpy(x);
  Run({"qemu-aarch64", "-L", "/usr/" + triple, folder + "/build/run_net", "x=" + Path("x.npy"), "--output-dir",
       Path("exported")});
  ASSERT_EQ(Build(kCpu).code, 0);
  for (const char* name : {"scores", "e"})
    Succeed({"run", Path("p"), "--input", "x=" + Path("x.npy"), "--compare",
             std::string(name) + "=" + Path("exported/") + name + ".npy", "--tolerance", "1e-4"});
}

TEST_F(ExportKernelsTest, TheProgramRefusesWrongFilesAndDamagedWeights) {
  if (!HasCmake()) GTEST_SKIP() << "there is no cmake here";
  ASSERT_EQ(Build(kCpu).code, 0);
  ASSERT_EQ(Export("p", "e", {"--name", "net"}).code, 0);
  BuildProject(Path("e"));
  const auto error_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {Path("e/build/run_net")};
    args.insert(args.end(), more.begin(), more.end());
    const auto done = RunProgram({.args = args, .environment = CleanEnvironment()});
    EXPECT_EQ(done->exit_code, 1);
    return done->errors;
  };
  std::ofstream(Path("x.npy"), std::ios::binary) << api::SerializeNpy(Array(DType::kFloat32, {2, 16, 8, 7}));
  EXPECT_EQ(error_of({"x=" + Path("x.npy")}), "run_net: " + Path("x.npy") +
                                                  " is no whole row-major .npy file with '<f4' and shape (2, 16, 8, "
                                                  "8), as input 'x' needs\n");
  EXPECT_EQ(error_of({"y=" + Path("x.npy")}),
            "run_net: 'y=" + Path("x.npy") + "' is no INPUT=FILE.npy; the inputs are x\n");
  EXPECT_EQ(error_of({"--folder", Path("none")}), "run_net: cannot read " + Path("none") + "/weights.bin\n");
  std::filesystem::resize_file(Path("e/weights.bin"), 100);
  EXPECT_EQ(error_of({"--folder", Path("e")}),
            "run_net: not of the size that the network has: " + Path("e") + "/weights.bin\n");
}

// Of C code for the driver's API: compiled wherever cuda.h is, executed where there is a GPU.
TEST_F(ExportKernelsTest, ACudaExportComputesTheSameBits) {
  const auto gpu = OpenDevice(Target::Parse("cuda").value());
  const CliResult built = Build(gpu.ok() ? "cuda" : "cuda -arch=sm_90");
  if (built.err.find("no CUDA compiler") != std::string::npos) GTEST_SKIP() << built.err;
  ASSERT_EQ(built.code, 0) << built.err;
  const CliResult exported = Export("p", "e", {"--name", "net"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(std::filesystem::exists(Path("e/net_launches.h")));
  if (!HasCmake()) GTEST_SKIP() << "there is no cmake here";
  const auto configured = RunProgram({.args = {"cmake", "-S", Path("e"), "-B", Path("e/probe")},
                                      .environment = CleanEnvironment(),
                                      .one_output = true});
  if (configured->output.find("CUDA_INCLUDE") != std::string::npos) GTEST_SKIP() << "there is no cuda.h here";
  BuildProject(Path("e"));
  if (!gpu.ok()) GTEST_SKIP() << "it was compiled, and not run: " << gpu.status().message();
  ExpectSameOutputs(Path("e/build/run_net"));
}

TEST_F(ExportKernelsTest, OnePlanOfSeveralIsExported) {
  ASSERT_EQ(Build(kCpu, "p", "1,2").code, 0);
  const std::string sentence = "one plan is exported, and package '" + Path("p") +
                               "' has batch=1; batch=2: give the sizes of one of them with --dim";
  ExpectError(Export("p", "e"), sentence);
  ExpectError(Export("p", "e", {"--dim", "batch=3"}), sentence);
  EXPECT_FALSE(std::filesystem::exists(Path("e")));
  ASSERT_EQ(Export("p", "e", {"--dim", "batch=1", "--name", "net"}).code, 0);
  EXPECT_THAT(ReadText(Path("e/net.c")), HasSubstr("{1, 16, 8, 8}"));
}

TEST_F(ExportKernelsTest, WhatCannotBeExportedIsRefused) {
  ASSERT_EQ(Build("opencl", "cl").code, 0);
  ExpectError(Export("cl", "e"), "package '" + Path("cl") +
                                     "' is for opencl, whose kernels only a driver compiles: kernels are exported "
                                     "from packages for cpu and cuda");
  ASSERT_EQ(Build(kCpu, "p.dpk").code, 0);
  ExpectError(Export("p.dpk", "e", {"--name", "2nd"}),
              "--name: '2nd' is no identifier of C: use letters, digits and _");
  for (const char* taken : {"main", "all", "test"})
    ExpectError(
        Export("p.dpk", "e", {"--name", taken}),
        std::string("--name: '") + taken + "' is a name that the project or CMake has already; give another one");
  ASSERT_EQ(Export("p.dpk", "e").code, 0);
  EXPECT_TRUE(std::filesystem::exists(Path("e/weights.bin")));
}

}  // namespace
}  // namespace diapason
