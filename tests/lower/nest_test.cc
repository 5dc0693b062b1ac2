#include "compiler/lower/nest.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 and 1: x, y of the sums of its rows.
ComputeDag RowSums() {
  DagBuilder b;
  const int x = b.Placeholder("x", {6, 8});
  const int y = b.Reduce("y", {6}, {8}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(x, {i[0], r[0]}); });
  return b.Build({y}).value();
}

std::string Built(const std::vector<Step>& steps) {
  testing::TestKernel test(RowSums(), steps, 1, "cpu -mcpu=x86-64-v3 -num-cores=2");
  int next = 2;
  const absl::StatusOr<KernelFunc> kernel = NestBuilder(test.kernel(), &next).Build();
  return kernel.ok() ? ToString(kernel->body) : kernel.status().ToString();
}

TEST(NestBuilder, SumsOfTheInnermostLoopsAreRegisters) {
  EXPECT_EQ(Built({}), R"(local float32 y_sum[1]
for y_i0 in 6:
  y_sum[0] = 0.0
  for y_r0 in 8:
    y_sum[0] = y_sum[0] + B0[y_i0 * 8 + y_r0]
  B1[y_i0] = y_sum[0]
)");
}

TEST(NestBuilder, SumsWaitInMemoryWhereALoopAroundThemReducesToo) {
  const std::vector<Step> steps{testing::SplitStep(1, 1, {2}), {StepKind::kReorder, 1, {2, 0, 3}, {}, -1, {}}};
  EXPECT_EQ(Built(steps), R"(local float32 y_sum[1]
for y_r0_0 in 4:
  for y_i0 in 6:
    if y_r0_0 == 0:
      y_sum[0] = 0.0
    if y_r0_0 != 0:
      y_sum[0] = B1[y_i0]
    for y_r0_1 in 2:
      y_sum[0] = y_sum[0] + B0[y_i0 * 8 + y_r0_0 * 2 + y_r0_1]
    B1[y_i0] = y_sum[0]
)");
}

TEST(NestBuilder, TilesThatReachBeyondALoopAreGuarded) {
  const std::string nest = Built({testing::SplitStep(1, 0, {4})});
  EXPECT_NE(nest.find(" < 6:\n"), std::string::npos) << nest;
}

TEST(NestBuilder, SaysWhatAScheduleCannotHave) {
  const std::vector<Step> steps{testing::AnnotateStep(1, 1, Annotation::kThreadX),
                                {StepKind::kReorder, 1, {1, 0}, {}, -1, {}}};
  EXPECT_EQ(Built(steps),
            "INVALID_ARGUMENT: stage y: a cross-thread reduction has its spatial loops outside and its thread loop "
            "innermost");
}

}  // namespace
}  // namespace diapason
