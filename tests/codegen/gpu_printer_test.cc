#include "compiler/codegen/gpu_printer.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/codegen.h"
#include "gtest/gtest.h"
#include "tests/codegen/gpu_kernels.h"
#include "tests/codegen/kernels.h"
#include "tests/count_text.h"

namespace diapason {
namespace {

using namespace diapason::testing;

std::string SourceOf(const KernelFunc& kernel, Dialect dialect) {
  Helpers helpers(dialect);
  const std::string text = PrintGpuKernel(kernel, dialect, helpers);
  return helpers.Text() + text;
}

KernelFunc RowKernel() {
  const Expr b = MakeVar("b"), t = MakeVar("t"), l = MakeVar("l");
  const Expr at = Mad(b, 128, Mad(t, 4, l));
  const Stmt copy = Vectorize(l, 4, MakeStore(1, at, Max(Add(At(0, at), At(2, FloorMod(at, 36))), F(0))));
  return KernelOf("row", {Global(0, "X", 512), Global(1, "Y", 512, true), Global(2, "bias", 36)},
                  MakeFor(ForKind::kBlockX, b, 4, MakeFor(ForKind::kThreadX, t, 32, copy)), 4, 32);
}

TEST(GpuPrinter, CudaText) {
  EXPECT_EQ(SourceOf(RowKernel(), Dialect::kCuda),
            R"(static __device__ __forceinline__ int umod32(int a, unsigned b) { return (int)((unsigned)a % b); }
static __device__ __forceinline__ float limit_below(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a < b ? b : a;
#endif
}
extern "C" __global__ void __launch_bounds__(32) row(const float* __restrict__ X, float* __restrict__ Y, const float* __restrict__ bias) {
  {
    const int b = blockIdx.x;
    {
      const int t = threadIdx.x;
      {
        const float4 chunk0 = *(const float4*)(X + b * 128 + t * 4);
        const float4 chunk1 = *(const float4*)(bias + umod32(b * 5 + t, 9) * 4);
        float4 chunk;
        chunk.x = limit_below(chunk0.x + chunk1.x, 0.0f);
        chunk.y = limit_below(chunk0.y + chunk1.y, 0.0f);
        chunk.z = limit_below(chunk0.z + chunk1.z, 0.0f);
        chunk.w = limit_below(chunk0.w + chunk1.w, 0.0f);
        *(float4*)(Y + b * 128 + t * 4) = chunk;
      }
    }
  }
}
)");
}

// Programmatic dependent launch: what the kernel in front may still write has no __restrict__ and is read behind the
// wait.
TEST(GpuPrinter, OverlappingKernelsWaitBeforeTheyTouchWhatIsNotConstant) {
  KernelFunc kernel = RowKernel();
  kernel.overlap = true;
  kernel.params[2].constant = true;
  kernel.body = MakeSeq({MakeLaunchDependents(), kernel.body});
  const std::string source = SourceOf(kernel, Dialect::kCuda);
  EXPECT_NE(source.find("row(const float* X, float* Y, const float* __restrict__ bias) {\n  launch_dependents();\n"),
            std::string::npos)
      << source;
  EXPECT_NE(source.find(
                "      const int t = threadIdx.x;\n      wait_for_previous();\n      {\n        const float4 chunk0 ="),
            std::string::npos)
      << source;
  EXPECT_EQ(SourceOf(kernel, Dialect::kOpenCl), SourceOf(RowKernel(), Dialect::kOpenCl));
}

// The number of times that `text` is in the source behind the helpers.
int CountBehindHelpers(const std::string& source, const std::string& text) {
  const size_t kernel = source.find("__global__");
  return kernel == std::string::npos ? 0 : testing::CountText(source.substr(kernel), text);
}

TEST(GpuPrinter, CopiesOfConstantsComeBeforeTheWait) {
  const Expr b = MakeVar("b"), t = MakeVar("t"), i = MakeVar("i");
  const Expr arrival = Load(11, DType::kInt64, {I(0)});
  const Stmt ask =
      MakeIf(Eq(t, I(0)), MakeSeq({MakeMbarrierInit(arrival, 1), MakeBulkCopy(10, I(0), 64, At(2, I(0)), arrival)}));
  const Stmt add = Serial(i, 2, MakeStore(1, Mad(i, 32, t), Add(At(0, Mad(i, 32, t)), At(10, Mad(i, 32, t)))));
  Stmt body = MakeSeq({ask, MakeBarrier(), MakeMbarrierWait(arrival, I(0)), add});
  body = MakeAlloc(Scoped(11, "arrival", 1, Scope::kShared, DType::kInt64), body);
  body = MakeAlloc(Scoped(10, "tile", 64, Scope::kShared), body);
  KernelFunc kernel = KernelOf("ahead", {Global(0, "X", 64), Global(1, "Y", 64, true), Global(2, "W", 64)},
                               BlockLoop(b, 1, ThreadLoop(t, 32, body)), 1, 32);
  kernel.overlap = true;
  kernel.params[2].constant = true;
  const std::string ahead = SourceOf(kernel, Dialect::kCuda);
  EXPECT_EQ(CountBehindHelpers(ahead, "wait_for_previous();"), 1) << ahead;
  EXPECT_LT(ahead.find("bulk_copy(tile"), ahead.rfind("wait_for_previous();")) << ahead;
  EXPECT_NE(ahead.find("wait_for_previous();\n      for (int i = 0"), std::string::npos) << "outside of the loop:\n"
                                                                                         << ahead;
  // The same copy of what is not constant.
  kernel.params[2].constant = false;
  const std::string behind = SourceOf(kernel, Dialect::kCuda);
  EXPECT_EQ(CountBehindHelpers(behind, "wait_for_previous();"), 1) << behind;
  EXPECT_NE(behind.find("wait_for_previous();\n      if (t == 0) {"), std::string::npos) << behind;
}

TEST(GpuPrinter, EveryThreadWaitsOnce) {
  const Expr b = MakeVar("b"), t = MakeVar("t"), n = MakeVar("n");
  const Stmt copy = MakeIf(Lt(t, I(20)), MakeStore(1, t, At(0, t)));
  const auto wait_of = [&](const Stmt& body) {
    KernelFunc kernel = KernelOf("once", {Global(0, "X", 32), Global(1, "Y", 32, true), Global(2, "W", 32)},
                                 BlockLoop(b, 1, ThreadLoop(t, 32, body)), 1, 32);
    kernel.overlap = true;
    kernel.params[2].constant = true;
    const std::string source = SourceOf(kernel, Dialect::kCuda);
    EXPECT_EQ(CountBehindHelpers(source, "wait_for_previous();"), 1) << source;
    return source.substr(source.rfind("wait_for_previous();"));
  };
  EXPECT_EQ(wait_of(MakeSeq({copy, MakeBarrier(), copy})).find("wait_for_previous();\n      if (t < 20) {"), 0u);
  // The value of a let is read where the let is.
  const Stmt let = MakeLet(n, At(0, I(0), DType::kInt32), MakeStore(1, t, Cast(DType::kFloat32, n)));
  EXPECT_EQ(wait_of(let).find("wait_for_previous();\n      {\n        const int"), 0u);
  // A kernel that touches nothing of others waits too: the next one counts on it.
  const Stmt nothing = MakeAlloc(Scoped(10, "local", 1, Scope::kLocal), MakeStore(10, I(0), At(2, t)));
  EXPECT_EQ(wait_of(nothing), "wait_for_previous();\n}\n");
}

// The first copies of a pipeline and its later ones give the variables of a step different ranges; where one of them is
// negative, no division is of unsigned numbers.
TEST(GpuPrinter, AVariableHasTheRangesOfAllPlacesThatBindIt) {
  const Expr b = MakeVar("b"), t = MakeVar("t"), i = MakeVar("i"), s = MakeVar("s"), k = MakeVar("k");
  const auto source_of = [&](bool both) {
    const auto at = [&](int64_t first) {
      return MakeStore(1, Mad(k, 4, Add(t, I(first))), At(0, Mad(FloorDiv(Sub(k, I(1)), 3), 4, Add(t, I(4)))));
    };
    const Stmt start = Serial(i, 4, MakeLet(k, i, at(0)), 1),
               steps = Serial(s, 9, MakeLet(k, Min(Add(s, I(4)), I(8)), at(64)), 1);
    const KernelFunc kernel = KernelOf("two_places", {Global(0, "X", 32), Global(1, "Y", 128, true)},
                                       BlockLoop(b, 1, ThreadLoop(t, 4, both ? MakeSeq({start, steps}) : steps)), 1, 4);
    return SourceOf(kernel, Dialect::kCuda);
  };
  EXPECT_EQ(CountBehindHelpers(source_of(false), "udiv32(k - "), 1) << source_of(false);
  EXPECT_EQ(CountBehindHelpers(source_of(true), "udiv32(k - "), 0) << source_of(true);
}

TEST(GpuPrinter, OpenClText) {
  EXPECT_EQ(SourceOf(RowKernel(), Dialect::kOpenCl),
            R"(static inline int umod32(int a, uint b) { return (int)((uint)a % b); }
static inline float limit_below(float a, float b) { return a < b ? b : a; }
__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void row(__global const float* restrict X, __global float* restrict Y, __global const float* restrict bias) {
  {
    const int b = get_group_id(0);
    {
      const int t = get_local_id(0);
      {
        const float4 chunk0 = *(__global const float4*)(X + b * 128 + t * 4);
        const float4 chunk1 = *(__global const float4*)(bias + umod32(b * 5 + t, 9) * 4);
        float4 chunk;
        chunk.x = limit_below(chunk0.x + chunk1.x, 0.0f);
        chunk.y = limit_below(chunk0.y + chunk1.y, 0.0f);
        chunk.z = limit_below(chunk0.z + chunk1.z, 0.0f);
        chunk.w = limit_below(chunk0.w + chunk1.w, 0.0f);
        *(__global float4*)(Y + b * 128 + t * 4) = chunk;
      }
    }
  }
}
)");
}

TEST(GpuPrinter, GemmCopiesInVectorsAndPredicatesThem) {
  const std::string source = SourceOf(SharedGemm(50, 32), Dialect::kCuda);
  EXPECT_NE(source.find("__shared__ __align__(16) float As[256];"), std::string::npos) << source;
  EXPECT_NE(source.find("float4 chunk = {};\n"), std::string::npos) << source;
  EXPECT_NE(source.find(") chunk = *(const float4*)(A + "), std::string::npos) << source;
  EXPECT_NE(source.find("*(float4*)(As + t * 4) = chunk;"), std::string::npos) << source;
  EXPECT_NE(source.find("*(float4*)(Bs + t * 4) = *(const float4*)(B + "), std::string::npos) << source;
}

// Words of two elements, which wait for nothing until they are computed with.
TEST(GpuPrinter, PackedRegistersAreLoadedAsAVectorOnCuda) {
  const std::string source = SourceOf(ThroughPacked(4, DType::kFloat16), Dialect::kCuda);
  const size_t load = source.find("chunk = *(const uint2*)(X + ");
  ASSERT_NE(load, std::string::npos) << source;
  EXPECT_NE(source.find("[3] = (unsigned short)(chunk.y >> 16);", load), std::string::npos) << source;
  EXPECT_GT(source.find("half_to_float(", load), source.find("Y[", load)) << source;
}

// A cache and what is appended to it: all lanes of a vector are of one of them.
TEST(GpuPrinter, CopiesThatChooseBetweenTensorsAreVectors) {
  const auto copy = [](const std::function<Expr(const Expr& t, const Expr& l)>& chosen) {
    const Expr t = MakeVar("t"), l = MakeVar("l");
    const Expr at = Mad(t, 4, l), value = Select(chosen(t, l), At(0, at), At(2, Sub(at, IntImm(80))));
    const Stmt stored = Vectorize(l, 4, MakeStore(1, at, Select(Lt(t, IntImm(30)), value, F(0))));
    return KernelOf("choice", {Global(0, "X", 80), Global(1, "Y", 128, true), Global(2, "Z", 48)},
                    MakeFor(ForKind::kBlockX, MakeVar("b"), 1, MakeFor(ForKind::kThreadX, t, 32, stored)), 1, 32);
  };
  const KernelFunc same = copy([](const Expr& t, const Expr&) { return Lt(t, IntImm(20)); });
  const std::string cuda = SourceOf(same, Dialect::kCuda), opencl = SourceOf(same, Dialect::kOpenCl);
  EXPECT_NE(cuda.find("if (t < 30) chunk = *(const float4*)(((t < 30) & (t < 20)) ? X + t * 4 : Z + "),
            std::string::npos)
      << cuda;
  EXPECT_NE(opencl.find("if (t < 30 && t < 20) chunk = "), std::string::npos) << opencl;
  EXPECT_NE(opencl.find("if (t < 30 && 20 <= t) chunk = "), std::string::npos) << opencl;
  for (const bool async : {true, false}) {
    const Expr t = MakeVar("t"), l = MakeVar("l");
    const Expr at = Mad(t, 4, l), value = Select(Lt(t, IntImm(20)), At(0, at), At(2, Sub(at, IntImm(80))));
    const Stmt stored = Vectorize(l, 4, MakeStore(3, at, Select(Lt(t, IntImm(30)), value, F(0)), async));
    Stmt body = MakeFor(ForKind::kThreadX, t, 32, stored);
    BufferDecl tile = Global(3, "tile", 128);
    tile.scope = Scope::kShared;
    body = MakeAlloc(tile, body);
    const KernelFunc kernel = KernelOf("choice", {Global(0, "X", 80), Global(1, "Y", 128, true), Global(2, "Z", 48)},
                                       MakeFor(ForKind::kBlockX, MakeVar("b"), 1, body), 1, 32);
    const bool copies =
        SourceOf(kernel, Dialect::kCuda).find("async_copy<16>(tile + t * 4, ((t < 30) & (t < 20)) ? X") !=
        std::string::npos;
    EXPECT_EQ(copies, async) << SourceOf(kernel, Dialect::kCuda);
  }
  const std::string apart =
      SourceOf(copy([](const Expr& t, const Expr& l) { return Lt(Mad(t, 4, l), IntImm(78)); }), Dialect::kCuda);
  EXPECT_EQ(apart.find("chunk = *"), std::string::npos) << apart;
}

TEST(GpuPrinter, MuchSharedMemoryIsDynamicOnCuda) {
  const KernelFunc small = ThroughShared(kMostStaticElements), large = ThroughShared(kLeastDynamicElements);
  EXPECT_EQ(SharedBytesOf(small), kMaxStaticSharedBytes);
  EXPECT_EQ(SharedBytesOf(large), kMaxStaticSharedBytes + 512);
  EXPECT_NE(SourceOf(small, Dialect::kCuda).find("__shared__ __align__(16) float tile[12288];"), std::string::npos);
  const std::string source = SourceOf(large, Dialect::kCuda);
  EXPECT_NE(source.find("extern __shared__ __align__(128) unsigned char shared_memory[];"), std::string::npos);
  EXPECT_NE(source.find("float* const tile = (float*)(shared_memory + 0);"), std::string::npos);
  EXPECT_NE(SourceOf(large, Dialect::kOpenCl).find("__local float tile[12416]"), std::string::npos);
}

KernelFunc Activations(const std::string& function, DType dtype, bool in_product = true) {
  return LanesOnGpu("activation", 4,
                    [&](const Expr& at, const Expr&) {
                      const Expr value = in_product ? Activation(function, At(0, at))
                                                    : Add(At(0, at), Activation(function, At(0, at)));
                      return dtype == DType::kFloat32 ? value : Cast(dtype, value);
                    },
                    {.to = dtype});
}

// Errors stay as small a part of a product, but not of a sum.
TEST(GpuPrinter, FunctionsInProductsThatAreRoundedTo16BitsAreCoarse) {
  for (const auto& [function, coarse] : {std::pair("sigmoid", "coarse_sigmoid("),
                                         {"tanh", "coarse_tanh_plus_1("},
                                         {"erf", "coarse_erf_plus_1("},
                                         {"gelu", "coarse_gelu("},
                                         {"gelu_tanh", "coarse_gelu_tanh("}}) {
    const std::string precise = absl::StrCat(absl::StrReplaceAll(function, {{"gelu_", ""}, {"gelu", "erf"}}), "f(");
    for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
      EXPECT_NE(SourceOf(Activations(function, dtype), Dialect::kCuda).find(coarse), std::string::npos) << function;
      EXPECT_EQ(SourceOf(Activations(function, dtype), Dialect::kOpenCl).find(coarse), std::string::npos) << function;
      const std::string sum = SourceOf(Activations(function, dtype, false), Dialect::kCuda);
      EXPECT_EQ(sum.find(coarse), std::string::npos) << function;
      EXPECT_NE(sum.find(precise), std::string::npos) << function;
    }
    EXPECT_EQ(SourceOf(Activations(function, DType::kFloat32), Dialect::kCuda).find(coarse), std::string::npos);
  }
}

// The polynomial of a function as it is printed, highest power first.
std::vector<float> CoefficientsOf(const std::string& function, const std::string& helper) {
  const std::string source = SourceOf(Activations(function, DType::kFloat16), Dialect::kCuda);
  std::string body = source.substr(source.find("float " + helper + "(float x)"));
  body = body.substr(0, body.find("}"));
  std::vector<float> coefficients;
  const std::regex number(R"(-?\d\.\d{8}(e-\d+)?f)");
  for (std::sregex_iterator at(body.begin(), body.end(), number), end; at != end; ++at)
    coefficients.push_back(std::strtof(at->str().c_str(), nullptr));
  return coefficients;
}

TEST(GpuPrinter, TheCoarseErrorFunctionIsNear) {
  const std::vector<float> coefficients = CoefficientsOf("erf", "coarse_erf_plus_1");
  ASSERT_EQ(coefficients.size(), 7u);
  const auto plus_1 = [&](float x) {
    const float a = std::fabs(x);
    float y = coefficients[0];
    for (size_t i = 1; i < coefficients.size(); ++i) y = std::fma(a, y, coefficients[i]);
    const float other = std::exp2(a * y);
    return x < 0 ? other : 2 - other;
  };
  for (float x = -4.25f; x < 4.25f; x += 0x1p-10f)
    ASSERT_NEAR(plus_1(x) / std::erfc(static_cast<double>(-x)), 1, 8e-6) << x;
  for (float x : {-5.f, -8.f, -30.f, -1e4f, -3e38f, -INFINITY}) EXPECT_LT(plus_1(x), 1e-9f) << x;
  for (float x : {5.f, 30.f, 3e38f, INFINITY}) EXPECT_EQ(plus_1(x), 2) << x;
  EXPECT_TRUE(std::isnan(plus_1(NAN)));
}

TEST(GpuPrinter, CoarseGeluIsNear) {
  const std::vector<float> coefficients = CoefficientsOf("gelu", "coarse_gelu");
  ASSERT_EQ(coefficients.size(), 7u);
  const auto gelu = [&](float x) {
    const float a = std::fmin(std::fabs(x), 10.0f);
    float y = coefficients[0];
    for (size_t i = 1; i < coefficients.size(); ++i) y = std::fma(a, y, coefficients[i]);
    return std::fma(-a, std::exp2(std::fma(a, y, -1.0f)), x < 0 ? 0.0f : x);
  };
  for (float x = -6.5f; x < 12; x += 0x1p-9f) {
    const double exact = 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    ASSERT_NEAR(gelu(x), exact, 0x1p-16 * std::fabs(exact)) << x;
  }
  for (float x : {-6.5f, -7.f, -9.f, -11.f, -30.f, -1e4f, -3e38f, -INFINITY}) {
    EXPECT_GT(gelu(x), -3e-10f) << x;
    EXPECT_LE(gelu(x), 0) << x;
  }
  for (float x : {30.f, 3e38f, INFINITY}) EXPECT_EQ(gelu(x), x);
  EXPECT_TRUE(std::isnan(gelu(NAN)));
}

TEST(GpuPrinter, UnalignedLanesAreSingleAccesses) {
  auto source = [](int64_t lanes, int64_t offset) {
    return SourceOf(LanesOnGpu(
                        "copy", lanes, [](const Expr& at, const Expr&) { return At(0, at); }, {}, offset),
                    Dialect::kCuda);
  };
  EXPECT_NE(source(4, 0).find("float4"), std::string::npos);
  EXPECT_EQ(source(4, 2).find("float4"), std::string::npos);
  EXPECT_NE(source(4, 2).find("float2"), std::string::npos);
  EXPECT_EQ(source(4, 1).find("float2"), std::string::npos);
  EXPECT_NE(source(4, 1).find("#pragma unroll"), std::string::npos);
}

TEST(GpuPrinter, HugeBuffersAreIndexedWith64Bits) {
  const Expr b = MakeVar("b"), t = MakeVar("t");
  const Expr at = Mad(b, 128, t);
  auto kernel = [&](int64_t elements) {
    return KernelOf("huge", {Global(0, "X", elements), Global(1, "Y", elements, true)},
                    BlockLoop(b, elements / 128, ThreadLoop(t, 128, MakeStore(1, at, At(0, at)))), elements / 128, 128);
  };
  EXPECT_NE(SourceOf(kernel(int64_t{1} << 20), Dialect::kCuda).find("const int b = blockIdx.x;"), std::string::npos);
  EXPECT_NE(SourceOf(kernel(int64_t{1} << 32), Dialect::kCuda).find("const int64 b = blockIdx.x;"), std::string::npos);
}

TEST(GpuPrinter, IntermediateResultsPast32BitsAreComputedWith64) {
  const KernelFunc kernel = LanesOnGpu(
      "wide", 1, [](const Expr& at, const Expr&) { return At(0, FloorDiv(Mul(at, I(100000007)), 200000003)); });
  EXPECT_NE(SourceOf(kernel, Dialect::kCuda).find("const int64 b"), std::string::npos);
}

}  // namespace
}  // namespace diapason
