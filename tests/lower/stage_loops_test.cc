#include "compiler/lower/stage_loops.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 2: x, p = x + 1, y of the sums of p's rows.
ComputeDag SumsOfRows(int64_t rows, int64_t columns) {
  DagBuilder b;
  const int x = b.Placeholder("x", {rows, columns});
  const int p = b.Compute("p", {rows, columns}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int y = b.Reduce("y", {rows}, {columns}, Combiner::kSum, [&](auto& i, auto& r) {
    return b.At(p, {i[0], r[0]});
  });
  return b.Build({y}).value();
}
constexpr int kTerms = 1, kSums = 2;

// y in blocks of `threads` rows, p in shared memory at the block's loop, by `copiers` threads.
std::vector<Step> InBlocks(int32_t threads, int32_t copiers) {
  return {testing::SplitStep(kSums, 0, {threads}),
          testing::AnnotateStep(kSums, 2, Annotation::kBlockX),
          testing::AnnotateStep(kSums, 3, Annotation::kThreadX),
          testing::ComputeAtStep(kTerms, kSums, 2),
          testing::MemoryStep(kTerms, Memory::kShared),
          testing::SplitStep(kTerms, 1, {copiers}),
          testing::AnnotateStep(kTerms, 3, Annotation::kThreadX)};
}

TEST(StageLoops, AThreadLoopThatIsSmallerThanTheBlockIsGuarded) {
  testing::TestKernel test(SumsOfRows(256, 64), InBlocks(64, 32), kSums, "cuda -arch=sm_80");
  test.Prepared(kSums);
  const StageValues& p = test.Prepared(kTerms);
  const Stmt around = test.parts().loops.Around(kTerms, 2, MakeBarrier());
  ASSERT_EQ(around->kind, StmtKind::kFor);
  EXPECT_EQ(around->for_kind, ForKind::kThreadX);
  EXPECT_EQ(around->extent, 32);
  ASSERT_EQ(around->body[0]->kind, StmtKind::kIf);
  EXPECT_EQ(ToString(around->body[0]->condition), p.leaf[2]->name + " < 32");
}

TEST(StageLoops, ABlockHasNoMoreThreadsThanItsRootSays) {
  testing::TestKernel test(SumsOfRows(256, 128), InBlocks(64, 128), kSums, "cuda -arch=sm_80");
  test.Prepared(kSums);
  test.Prepared(kTerms);
  test.parts().loops.Around(kTerms, 2, MakeBarrier());
  EXPECT_EQ(test.nest().status, absl::FailedPreconditionError("stage p needs 128 threads in a block of 64"));
}

TEST(StageLoops, OneIterationIsNoLoop) {
  testing::TestKernel test(SumsOfRows(4, 6), {testing::SplitStep(kSums, 0, {4})}, kSums);
  test.Prepared(kSums);
  const Stmt body = MakeBarrier();
  EXPECT_EQ(test.parts().loops.Around(kSums, 0, body), body);
  EXPECT_EQ(test.parts().loops.Around(kSums, 1, body)->extent, 4);
  EXPECT_EQ(test.parts().loops.Around(kSums, 1, nullptr), nullptr);
}

TEST(StageLoops, KindsFollowAnnotations) {
  testing::TestKernel test(SumsOfRows(4, 6),
                           {testing::AnnotateStep(kSums, 0, Annotation::kVectorize), testing::SplitStep(kSums, 1, {2}),
                            testing::AnnotateStep(kSums, 3, Annotation::kVectorize)},
                           kSums);
  test.Prepared(kSums);
  EXPECT_EQ(test.parts().loops.KindOf(kSums, 0), ForKind::kUnroll) << "not innermost";
  EXPECT_EQ(test.parts().loops.KindOf(kSums, 1), ForKind::kSerial);
  EXPECT_EQ(test.parts().loops.KindOf(kSums, 2), ForKind::kVectorize);
}

TEST(StageLoops, SumsAreRegistersFromWhereLoopsReduceOrAreUnrolled) {
  const std::vector<Step> serial{testing::SplitStep(kSums, 0, {2}), {StepKind::kReorder, kSums, {2, 1, 3}, {}, -1, {}}};
  std::vector<Step> unrolled = serial;
  unrolled.push_back(testing::AnnotateStep(kSums, 3, Annotation::kUnroll));
  for (const auto& [steps, position] : {std::pair(serial, size_t{3}), {unrolled, size_t{1}}}) {
    testing::TestKernel test(SumsOfRows(8, 6), steps, kSums);
    test.Prepared(kSums);
    const StageLoops& loops = test.parts().loops;
    EXPECT_EQ(loops.FirstReduction(kSums), 1);
    EXPECT_EQ(loops.RegisterPosition(kSums, 1), position);
    EXPECT_TRUE(loops.HasReduction(kSums, 1));
    EXPECT_FALSE(loops.HasReduction(kSums, 2));
    EXPECT_TRUE(loops.InSerialLoops(kSums, 1));
  }
}

TEST(StageLoops, SpatialLoopsOfACopyHaveVariablesOfTheirOwn) {
  testing::TestKernel test(SumsOfRows(4, 6), {}, kSums);
  const StageValues& y = test.Prepared(kSums);
  const Stmt nest = test.parts().loops.SpatialNest(
      kSums, 0, [&](const VarMap& fresh) { return MakeStore(kSums, Substitute(y.leaf[0], fresh), FloatImm(0)); });
  ASSERT_EQ(nest->kind, StmtKind::kFor);
  EXPECT_EQ(nest->extent, 4);
  EXPECT_NE(nest->var, y.leaf[0]);
  EXPECT_EQ(nest->body[0]->index, nest->var);
}

}  // namespace
}  // namespace diapason
