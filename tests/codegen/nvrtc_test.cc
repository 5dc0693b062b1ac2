// CUDA source through NVRTC: no GPU is needed to compile.
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "gtest/gtest.h"
#include "tests/codegen/gpu_kernels.h"

namespace diapason {
namespace {

using namespace diapason::testing;

Target CudaTarget(const std::string& arch = "") {
  Target target;
  target.kind = TargetKind::kCuda;
  target.arch = arch;
  return target;
}

// True, with the reason, on a machine without NVRTC.
bool NoNvrtc() {
  Program program;
  program.target = CudaTarget();
  program.source = "extern \"C\" __global__ void nothing() {}";
  const absl::Status status = CompileSource(program, 30);
  if (!absl::IsUnavailable(status)) return false;
  EXPECT_EQ(std::string(status.message()),
            "no CUDA compiler: libnvrtc.so was not found; install the CUDA toolkit's NVRTC (12 or later), or add its "
            "folder to LD_LIBRARY_PATH");
  return true;
}

TEST(Nvrtc, EveryGpuKernelBecomesACubin) {
  if (NoNvrtc()) GTEST_SKIP();
  LoweredProgram program;
  for (const KernelFunc& kernel : AllGpuKernels()) {
    program.kernels.push_back(kernel);
    for (const BufferDecl& param : kernel.params) program.buffers[param.id].decl = param;
  }
  program.kernels.push_back(ThroughShared(16 * 1024));
  const absl::StatusOr<Program> compiled = CompileProgram(program, CudaTarget());
  ASSERT_TRUE(compiled.ok()) << compiled.status() << PrintSource(program, CudaTarget());
  EXPECT_EQ(compiled->binary.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(compiled->compiler.substr(0, 6), "NVRTC ");
  ASSERT_EQ(compiled->registers.size(), program.kernels.size());
  ASSERT_EQ(compiled->spill_bytes.size(), program.kernels.size());
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    EXPECT_GT(compiled->registers[i], 0) << program.kernels[i].name;
    EXPECT_EQ(compiled->spill_bytes[i], 0) << program.kernels[i].name;
  }
  EXPECT_EQ(compiled->kernels.back().shared_bytes, 64 << 10);
}

// What the printer takes for static (kMaxStaticSharedBytes) is what the compiler takes.
TEST(Nvrtc, SharedMemoryIsStaticAsFarAsTheCompilerAllows) {
  if (NoNvrtc()) GTEST_SKIP();
  for (const int64_t elements : {kMostStaticElements, kLeastDynamicElements}) {
    const absl::StatusOr<Program> compiled = CompileProgram(ProgramOf(ThroughShared(elements)), CudaTarget());
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->kernels[0].shared_bytes, 4 * elements);
    EXPECT_EQ(compiled->source.find("extern __shared__") == std::string::npos, elements == kMostStaticElements);
  }
}

// A kernel that keeps `values` numbers in registers at once.
std::string KernelOf(int values, const std::string& bounds) {
  const std::string count = std::to_string(values);
  return "extern \"C\" __global__ void " + bounds + " large(const float* x, float* y) {\n  float a[" + count +
         "];\n#pragma unroll\n  for (int i = 0; i < " + count + "; ++i) a[i] = x[i * 1024 + threadIdx.x];\n" +
         "  __syncthreads();\n#pragma unroll\n  for (int i = 0; i < " + count +
         "; ++i) y[i * 1024 + threadIdx.x] = a[" + std::to_string(values - 1) + " - i] * a[i];\n}\n";
}

// A program for that kernel alone.
Program ProgramOfLarge(int64_t threads) {
  Program program;
  program.target = CudaTarget("sm_90");
  program.kernels.resize(1);
  program.kernels[0].name = "large";
  program.kernels[0].block[0] = threads;
  return program;
}

TEST(Nvrtc, SpillsAreReported) {
  if (NoNvrtc()) GTEST_SKIP();
  Program program;
  program.target = CudaTarget("sm_90");
  program.kernels.resize(2);
  program.kernels[0].name = "small";
  program.kernels[1].name = "large";
  program.source = "extern \"C\" __global__ void small(float* y) { y[threadIdx.x] = 1.0f; }\n" +
                   KernelOf(200, "__launch_bounds__(1024)");
  ASSERT_TRUE(CompileSource(program, 30).ok());
  ASSERT_EQ(program.registers.size(), 2u);
  EXPECT_LT(program.registers[0], 32);
  EXPECT_EQ(program.registers[1], 64);
  EXPECT_EQ(program.spill_bytes[0], 0);
  EXPECT_GT(program.spill_bytes[1], 0);
}

TEST(Nvrtc, KernelsThatSpillForASecondBlockGetItsRegisters) {
  if (NoNvrtc()) GTEST_SKIP();
  Program program = ProgramOfLarge(256);
  // 128 registers a thread are what two blocks leave it, whether the compiler wants these or the source does.
  for (const char* bounds : {"__launch_bounds__(256)", "__launch_bounds__(256, 2)"}) {
    program.source = KernelOf(270, bounds);
    ASSERT_TRUE(CompileSource(program, 30).ok());
    EXPECT_EQ(program.spill_bytes[0], 0) << bounds;
    EXPECT_GT(program.registers[0], 128) << bounds;
  }
}

TEST(Nvrtc, AFewRegistersAreGivenUpForABlockMore) {
  if (NoNvrtc()) GTEST_SKIP();
  Program program = ProgramOfLarge(128);
  for (int values = 200; values < 340; values += 10) {
    program.source = KernelOf(values, "__launch_bounds__(128)");
    ASSERT_TRUE(CompileSource(program, 30).ok());
    EXPECT_EQ(program.spill_bytes[0], 0) << values;
    // Four blocks of 128 registers a thread, three of 168.
    EXPECT_FALSE(program.registers[0] > 128 && program.registers[0] <= 136) << values;
    EXPECT_FALSE(program.registers[0] > 168 && program.registers[0] <= 180) << values;
  }
}

TEST(Nvrtc, BadSourceIsInvalidArgumentWithTheFirstErrors) {
  if (NoNvrtc()) GTEST_SKIP();
  Program program;
  program.target = CudaTarget("sm_90");
  program.source = "extern \"C\" __global__ void broken() { no_such_function(); }\n";
  const absl::Status status = CompileSource(program, 30);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(std::string(status.message()).substr(program.compiler.size()).find("NVRTC "), 0u) << status;
  EXPECT_NE(std::string(status.message())
                .find(" refused the generated source for sm_90 (NVRTC_ERROR_COMPILATION):\n"
                      "kernels.cu(1): error: identifier \"no_such_function\" is undefined"),
            std::string::npos)
      << status;
  EXPECT_TRUE(program.binary.empty());
}

TEST(Nvrtc, UnknownArchitectureIsInvalidArgument) {
  if (NoNvrtc()) GTEST_SKIP();
  Program program;
  program.target = CudaTarget("sm_1");
  program.source = "extern \"C\" __global__ void nothing() {}";
  const absl::Status status = CompileSource(program, 30);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(std::string(status.message()).find("for sm_1"), std::string::npos) << status;
}

TEST(Nvrtc, OtherArchitecturesCompileToo) {
  if (NoNvrtc()) GTEST_SKIP();
  for (const char* arch : {"sm_80", "sm_100"}) {
    const absl::StatusOr<Program> compiled = CompileProgram(ProgramOf(SharedGemm(50, 32)), CudaTarget(arch));
    EXPECT_TRUE(compiled.ok()) << arch << ": " << compiled.status();
  }
}

}  // namespace
}  // namespace diapason
