#include "compiler/lower/limits.h"

#include <gtest/gtest.h>

#include "compiler/lower/lower.h"
#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// p = x + 1; c[i, j] = sum over k of p[i, k] * w[k, j]; y = max(c, 0); z = p + p. Stages 0 to 5: x, w, p, c, y, z.
ComputeDag Task() {
  DagBuilder b;
  const int x = b.Placeholder("x", {4096, 32}), w = b.Constant("w", {32, 40});
  const int p = b.Compute("p", {4096, 32}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int c = b.Reduce("c", {4096, 40}, {32}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(p, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  const int y = b.Compute("y", {4096, 40}, [&](auto& i) { return Max(b.At(c, i), FloatImm(0)); });
  const int z = b.Compute("z", {4096, 32}, [&](auto& i) { return Add(b.At(p, i), b.At(p, i)); });
  return b.Build({y, z}).value();
}
constexpr int kP = 2, kC = 3, kY = 4;

absl::Status LowerStatus(std::vector<Step> steps) {
  const Target target = Target::Parse("cpu -mcpu=x86-64-v3 -num-cores=2").value();
  Schedule schedule;
  schedule.steps = std::move(steps);
  return Lower(Task(), schedule, target, DefaultFacts(target)).status();
}
void ExpectInvalid(std::vector<Step> steps, const std::string& text) {
  EXPECT_EQ(LowerStatus(std::move(steps)), absl::InvalidArgumentError(text));
}
void ExpectBeyond(std::vector<Step> steps, const std::string& text) {
  EXPECT_EQ(LowerStatus(std::move(steps)), absl::FailedPreconditionError(text));
}

TEST(LowerLimitsTest, NumbersOutOfRange) {
  ExpectInvalid({testing::SplitStep(kC, 0, {4, 0})},
                "schedule step 0 (split stage 3 loops 0 factors 4,0): 0 is out of range");
  ExpectInvalid({testing::SplitStep(kC, 0, {-8})},
                "schedule step 0 (split stage 3 loops 0 factors -8): -8 is out of range");
  ExpectInvalid({testing::SplitStep(kC, 0, {1 << 30}), testing::SplitStep(kC, 1, {1 << 30})},
                "schedule step 1 (split stage 3 loops 1 factors 1073741824): 1073741824 is out of range");
  ExpectInvalid({testing::NumberStep(StepKind::kPadRows, kC, -1)},
                "schedule step 0 (pad_rows stage 3 factors -1): -1 is out of range");
  ExpectInvalid({testing::NumberStep(StepKind::kAlignRows, kC, 0)},
                "schedule step 0 (align_rows stage 3 factors 0): 0 is out of range");
  ExpectInvalid({testing::NumberStep(StepKind::kUnroll, kC, 65537)},
                "schedule step 0 (unroll stage 3 factors 65537): 65537 is out of range");
  ExpectInvalid({testing::NumberStep(StepKind::kPipeline, kC, 65)},
                "schedule step 0 (pipeline stage 3 factors 65): 65 is out of range");
  ExpectInvalid({testing::NumberStep(StepKind::kBulkCopy, kC, 0)},
                "schedule step 0 (bulk_copy stage 3 factors 0): 0 is out of range");
  ExpectInvalid({testing::NumberStep(StepKind::kOverlap, kY, 3)},
                "schedule step 0 (overlap stage 4 factors 3): 3 is out of range");
  ExpectInvalid({testing::ComputeAtStep(kC, kY, 0, 1)},
                "schedule step 0 (compute_at stage 3 loops 0 target 4 factors 1): 1 is out of range");
}

// A root's buffer is its tensor: rows that are written elsewhere would end behind it.
TEST(LowerLimitsTest, RowsOfTensorsAreNotPadded) {
  const Target target = Target::Parse("cpu -mcpu=x86-64-v3 -num-cores=2").value();
  for (const StepKind kind : {StepKind::kPadRows, StepKind::kOddRows}) {
    Schedule schedule;
    schedule.steps = {testing::NumberStep(kind, kP, 1000), testing::NumberStep(kind, kY, 8)};
    const auto padded = Lower(Task(), schedule, target, DefaultFacts(target)),
               plain = Lower(Task(), {}, target, DefaultFacts(target));
    ASSERT_TRUE(padded.ok() && plain.ok());
    ASSERT_EQ(padded->kernels.size(), plain->kernels.size());
    for (size_t k = 0; k < plain->kernels.size(); ++k)
      EXPECT_EQ(ToString(padded->kernels[k]), ToString(plain->kernels[k]));
  }
}

TEST(LowerLimitsTest, LoopsThatWouldBeSourceTextWithoutEnd) {
  EXPECT_TRUE(
      LowerStatus({testing::SplitStep(kY, 0, {1024}), testing::AnnotateStep(kY, 3, Annotation::kVectorize)}).ok());
  ExpectBeyond({testing::SplitStep(kY, 0, {2048}), testing::AnnotateStep(kY, 3, Annotation::kVectorize)},
               "stage y has 2048 lanes of a vector, the most are 1024");
  ExpectBeyond({testing::AnnotateStep(kY, 0, Annotation::kUnroll), testing::AnnotateStep(kY, 1, Annotation::kUnroll)},
               "stage y has 163840 unrolled iterations, the most are 65536");
  ExpectBeyond({testing::SplitStep(kC, 2, {1 << 30, 1 << 14})},
               "stage c has 2.8823e+18 iterations, the most are 4.5036e+15");
}

TEST(LowerLimitsTest, GridsThatNoGpuLaunches) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto lower = [&](int64_t elements) {
    DagBuilder b;
    const int x = b.Placeholder("x", {elements});
    const int y = b.Compute("y", {elements}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
    Schedule schedule;
    schedule.steps = {testing::AnnotateStep(y, 0, Annotation::kBlockX)};
    return Lower(b.Build({y}).value(), schedule, target, DefaultFacts(target)).status();
  };
  EXPECT_EQ(lower((int64_t{1} << 32) + 1),
            absl::FailedPreconditionError(
                "kernel k_y needs 4294967297 blocks, a GPU launches at most 2147483647; choose larger tiles"));
  EXPECT_EQ(lower(int64_t{1} << 31).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(lower((int64_t{1} << 31) - 1), absl::OkStatus());
}

// Steps that hold for themselves, but not together.
TEST(LowerLimitsTest, StagesThatAreNotThereWhereTheyAreRead) {
  EXPECT_TRUE(LowerStatus({testing::ComputeAtStep(kC, kY, 0)}).ok());
  ExpectInvalid({testing::ComputeAtStep(kP, kC, 0)}, "stage z reads p outside of the loop at which it is computed");
  ExpectInvalid({testing::ComputeAtStep(kC, kY, 0), testing::SplitStep(kY, 0, {4})},
                "stage c is computed at a loop of y that was split or fused since");
}

TEST(LowerLimitsTest, BuffersOutsideOfTheirPlace) {
  KernelFunc kernel;
  kernel.name = "k_y";
  kernel.params = {{0, "x"}, {1, "y"}};
  const auto copy_from = [](int buffer) { return MakeStore(1, IntImm(0), Load(buffer, DType::kFloat32, {IntImm(0)})); };
  kernel.body = copy_from(0);
  EXPECT_TRUE(CheckBuffers(kernel).ok());
  kernel.body = MakeAlloc({2, "t"}, copy_from(2));
  EXPECT_TRUE(CheckBuffers(kernel).ok());
  kernel.body = MakeSeq({MakeAlloc({2, "t"}, copy_from(0)), copy_from(2)});
  EXPECT_EQ(CheckBuffers(kernel),
            absl::InvalidArgumentError("kernel k_y uses buffer 2 outside of the place where it lives"));
}

}  // namespace
}  // namespace diapason
