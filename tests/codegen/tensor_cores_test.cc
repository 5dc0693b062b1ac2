// Tensor cores read the upper 19 bits of a float32 and ignore the low 13: the large part of a factor need not be cut
// out. In the interpreter of loop nests, which does as they do, and executed where there is a GPU.
#include <cmath>
#include <cstring>
#include <random>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/expr_printer.h"
#include "gtest/gtest.h"
#include "tests/codegen/device_runs.h"
#include "tests/codegen/gpu_kernels.h"

namespace diapason {
namespace {

using namespace diapason::testing;

constexpr int64_t kK = 8, kColumns = 8;
// Of a sum of 8 products of factors below 1 when only the products of the low parts are left out; and less than what
// it would be off by if the low 13 bits were read, and so counted twice, or rounded.
constexpr double kPrecise = 8.0 / (1 << 18), kTwice = 8.0 / (1 << 16);

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Numbers of [0.5, 1), whose low 13 bits are all but zeros.
std::vector<float> Factors(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> factors;
  for (int64_t i = 0; i < count; ++i)
    factors.push_back(FloatOf(0x3f000000u | (random() & 0x7fe000u) | 0x1800u | (random() & 0x7ffu)));
  return factors;
}

// C[16, 8] = A[16, 8] * B[8, 8] by one warp.
KernelFunc ProductByWarp() {
  const Expr b = MakeVar("b"), t = MakeVar("t");
  const Expr g = FloorDiv(t, 4), q = FloorMod(t, 4);
  std::vector<Expr> operands = {I(0), I(1), I(2), I(3)};
  for (int i = 0; i < 4; ++i) operands.push_back(At(0, Mad(Add(g, I(i % 2 * 8)), kK, Add(q, I(i / 2 * 4)))));
  for (int i = 0; i < 2; ++i) operands.push_back(At(1, Mad(Add(q, I(4 * i)), kColumns, g)));
  std::vector<Stmt> steps = {MakeMma(TensorMode::kThreeTf32, {}, 10, operands, true)};
  for (int i = 0; i < 4; ++i)
    steps.push_back(MakeStore(2, Mad(Add(g, I(i / 2 * 8)), kColumns, Mad(q, 2, I(i % 2))), At(10, I(i))));
  return KernelOf(
      "warp_product", {Global(0, "A", 16 * kK), Global(1, "B", kK * kColumns), Global(2, "C", 16 * kColumns, true)},
      BlockLoop(b, 1, ThreadLoop(t, 32, MakeAlloc(Scoped(10, "sums", 4, Scope::kLocal), MakeSeq(steps)))), 1, 32);
}

// C[64, 8] = A[64, 8] * B[8, 8] by a warpgroup, B in shared memory as core matrices.
KernelFunc ProductByWarpgroup() {
  constexpr int64_t kStride = 32;
  const Expr b = MakeVar("b"), t = MakeVar("t");
  const Expr g = FloorDiv(FloorMod(t, 32), 4), q = FloorMod(t, 4), rows = Mul(FloorDiv(t, 32), I(16));
  const Expr k = FloorDiv(t, kColumns), n = FloorMod(t, kColumns);
  const Expr place = Add(Mul(FloorDiv(k, 4), I(kStride)), Mad(n, 4, FloorMod(k, 4)));
  std::vector<Stmt> steps = {MakeIf(
      Lt(t, I(kK * kColumns)),
      MakeSeq({MakeStore(11, place, At(1, t)), MakeFactorParts(FactorPart::kLow, 12, place, 1, At(11, place))}))};
  std::vector<Expr> operands;
  for (int i = 0; i < 4; ++i) {
    steps.push_back(MakeStore(13, I(i), At(0, Mad(Add(rows, Add(g, I(i % 2 * 8))), kK, Add(q, I(i / 2 * 4))))));
    operands.push_back(At(13, I(i)));
  }
  for (int i = 0; i < 4; ++i) operands.push_back(At(14, I(i)));
  operands.push_back(At(11, I(0)));
  operands.push_back(At(12, I(0)));
  steps.insert(steps.end(), {MakeFactorParts(FactorPart::kLow, 14, I(0), 4, At(13, I(0))),
                             MakeGroupSync(GroupSync::kPublish), MakeBarrier(), MakeGroupSync(GroupSync::kBegin),
                             MakeGroupMma({.tensor = TensorMode::kGroupThreeTf32,
                                           .buffer = 10,
                                           .index = I(0),
                                           .columns = kColumns,
                                           .from_zero = true,
                                           .operands = operands,
                                           .column_matrices = {.width = 4, .stride = kStride}}),
                             MakeGroupSync(GroupSync::kCommit), MakeGroupSync(GroupSync::kWait, 0)});
  for (int i = 0; i < 4; ++i)
    steps.push_back(MakeStore(2, Mad(Add(rows, Add(g, I(i / 2 * 8))), kColumns, Mad(q, 2, I(i % 2))), At(10, I(i))));
  Stmt body = MakeSeq(steps);
  for (const auto& [id, name] : {std::pair{10, "sums"}, std::pair{13, "rows"}, std::pair{14, "rows_low"}})
    body = MakeAlloc(Scoped(id, name, 4, Scope::kLocal), body);
  for (const auto& [id, name] : {std::pair{11, "columns"}, std::pair{12, "columns_low"}}) {
    BufferDecl decl = Scoped(id, name, kK * kColumns, Scope::kShared);
    decl.alignment = 128;
    body = MakeAlloc(decl, body);
  }
  return KernelOf("group_product",
                  {Global(0, "A", 64 * kK), Global(1, "B", kK * kColumns), Global(2, "C", 64 * kColumns, true)},
                  BlockLoop(b, 1, ThreadLoop(t, 128, body)), 1, 128);
}

// Sums in double of what `product` makes of two factors.
template <typename Product>
std::vector<double> Multiply(const std::vector<float>& a, const std::vector<float>& b, Product product) {
  std::vector<double> c(a.size(), 0);
  for (size_t i = 0; i < c.size(); ++i)
    for (int64_t k = 0; k < kK; ++k) c[i] += product(a[i / kColumns * kK + k], b[k * kColumns + i % kColumns]);
  return c;
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

class TensorCores : public ::testing::TestWithParam<bool> {
 protected:
  TensorCores()
      : kernel_(GetParam() ? ProductByWarpgroup() : ProductByWarp()),
        a_(Factors(kernel_.params[0].elements, 1)),
        b_(Factors(kK * kColumns, 2)),
        exact_(Multiply(a_, b_, [](double a, double b) { return a * b; })) {}

  // What the device would make if its products read more than 19 bits: low parts are then counted twice.
  static double WithAllBits(double a, double b) {
    const auto low = [](double x) { return x - FloatOf(BitsOf(static_cast<float>(x)) & 0xffffe000u); };
    return low(a) * b + a * low(b) + a * b;
  }
  // Or if it rounded them.
  static double Rounded(double a, double b) {
    const auto cut = [](double x, uint32_t add) {
      return FloatOf((BitsOf(static_cast<float>(x)) + add) & 0xffffe000u);
    };
    return (a - cut(a, 0)) * cut(b, 0x1000) + cut(a, 0x1000) * (b - cut(b, 0)) +
           double{cut(a, 0x1000)} * cut(b, 0x1000);
  }

  const KernelFunc kernel_;
  const std::vector<float> a_, b_;
  const std::vector<double> exact_;
};

TEST_P(TensorCores, TheTestWouldSeeTheLowBits) {
  EXPECT_GT(LargestDifference(Multiply(a_, b_, WithAllBits), exact_), kTwice);
  EXPECT_GT(LargestDifference(Multiply(a_, b_, Rounded), exact_), kTwice);
}

TEST_P(TensorCores, TheInterpreterIgnoresTheLowBits) {
  NestRunner nest;
  nest.buffers[0].assign(a_.begin(), a_.end());
  nest.buffers[1].assign(b_.begin(), b_.end());
  nest.buffers[2].assign(exact_.size(), std::nan(""));
  nest.Run(kernel_);
  EXPECT_LT(LargestDifference(nest.buffers[2], exact_), kPrecise);
}

TEST_P(TensorCores, TheGpuIgnoresTheLowBits) {
  Target target = Target::Parse("cuda").value();
  const auto device = OpenDevice(target);
  target.arch = device.ok() ? (*device)->facts().arch : "sm_90";
  const absl::StatusOr<Program> program = CompileProgram(ProgramOf(kernel_), target);
  if (absl::IsUnavailable(program.status())) GTEST_SKIP() << program.status().message();
  ASSERT_TRUE(program.ok()) << program.status() << PrintSource(ProgramOf(kernel_), target);
  if (!device.ok()) GTEST_SKIP() << "compiled; not run: " << device.status().message();
  if (GetParam() && target.arch != "sm_90") GTEST_SKIP() << target.arch << " has no wgmma";
  auto executable = Executable::Create(**device, *program).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  ASSERT_TRUE((*device)->CopyIn(*executable->buffer(0), a_.data(), 4 * a_.size()).ok());
  ASSERT_TRUE((*device)->CopyIn(*executable->buffer(1), b_.data(), 4 * b_.size()).ok());
  ASSERT_TRUE(executable->MakePlan().value()->Run().ok());
  std::vector<float> c(exact_.size());
  ASSERT_TRUE((*device)->CopyOut(c.data(), *executable->buffer(2), 4 * c.size()).ok());
  EXPECT_LT(LargestDifference({c.begin(), c.end()}, exact_), kPrecise);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TensorCores, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Warpgroup" : "Warp"; });

// One product of a tensor core, of factors that differ in their low 13 bits alone.
TEST(TensorCoreProduct, HasTheSameBitsWhateverTheLowBitsOfFactorsAre) {
  Target target = Target::Parse("cuda").value();
  const auto device = OpenDevice(target);
  target.arch = device.ok() ? (*device)->facts().arch : "sm_90";
  Helpers helpers(Dialect::kCuda);
  helpers.Use("low_part");
  helpers.Use("add_three_tf32");
  Program program;
  program.target = target;
  program.source = helpers.Text() + R"(
extern "C" __global__ void product(const unsigned* a, const unsigned* b, float* c) {
  const int t = threadIdx.x;
  float* const sums = c + 4 * t;
  add_tf32(sums[0], sums[1], sums[2], sums[3], a[t], a[t + 32], a[t + 64], a[t + 96], b[t], b[t + 32]);
}
)";
  program.buffers = {{.name = "a", .elements = 128},
                     {.name = "b", .elements = 64},
                     {.name = "c", .elements = 128, .role = BufferRole::kOutput}};
  Kernel& kernel = program.kernels.emplace_back();
  kernel.name = "product";
  kernel.args = {0, 1, 2};
  kernel.block[0] = 32;
  const absl::Status compiled = CompileSource(program, 30);
  if (absl::IsUnavailable(compiled)) GTEST_SKIP() << compiled.message();
  ASSERT_TRUE(compiled.ok()) << compiled;
  if (!device.ok()) GTEST_SKIP() << "compiled; not run: " << device.status().message();
  auto executable = Executable::Create(**device, program).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  const auto plan = executable->MakePlan().value();
  std::vector<uint32_t> first;
  for (uint32_t low : {0u, 0x1fffu, 0x1000u, 0x0fffu}) {
    for (int i = 0; i < 2; ++i) {
      std::vector<float> factors = Factors(i == 0 ? 128 : 64, i);
      for (float& factor : factors) factor = FloatOf((BitsOf(factor) & 0xffffe000u) | low);
      ASSERT_TRUE((*device)->CopyIn(*executable->buffer(i), factors.data(), 4 * factors.size()).ok());
    }
    ASSERT_TRUE((*device)->Fill(*executable->buffer(2), 0).ok());
    ASSERT_TRUE(plan->Run().ok());
    std::vector<uint32_t> bits(128);
    ASSERT_TRUE((*device)->CopyOut(bits.data(), *executable->buffer(2), 4 * 128).ok());
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << low;
    EXPECT_NE(bits[0], 0u);
  }
}

}  // namespace
}  // namespace diapason
