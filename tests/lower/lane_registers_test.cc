#include "compiler/lower/lane_registers.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// y[i, j] = p[i, of(j)], p = x + 1: stages 2, 1 and 0. Each thread of a block has the elements of p that it computes.
ComputeDag ReadingLanes(int64_t columns, const std::function<Expr(const Expr& j)>& of) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4, columns});
  const int p = b.Compute("p", {4, columns}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int y = b.Compute("y", {4, columns}, [&](auto& i) { return b.At(p, {i[0], of(i[1])}); });
  return b.Build({y}).value();
}

std::vector<Step> ByLanes() {
  return {testing::AnnotateStep(2, 0, Annotation::kBlockX), testing::AnnotateStep(2, 1, Annotation::kThreadX),
          testing::ComputeAtStep(1, 2, 0), testing::MemoryStep(1, Memory::kLanes),
          testing::AnnotateStep(1, 1, Annotation::kThreadX)};
}

Expr LowerRead(testing::TestKernel* test) {
  test->Prepared(2);
  test->Prepared(1);
  bool unsafe = false;
  return test->parts().expressions.Lower(2, test->kernel().state.stage(2).op.body, &unsafe);
}

TEST(LaneRegisters, AThreadReadsWhatItHasItself) {
  testing::TestKernel test(ReadingLanes(32, [](auto& j) { return j; }), ByLanes(), 2, "cuda -arch=sm_80");
  EXPECT_EQ(ToString(LowerRead(&test)), "T1[0]");
  EXPECT_TRUE(test.parts().lanes.TakeShuffles().empty());
}

TEST(LaneRegisters, AnotherLaneIsAskedByAShuffle) {
  testing::TestKernel test(ReadingLanes(32, [](auto& j) { return Sub(IntImm(31), j); }), ByLanes(), 2,
                           "cuda -arch=sm_80");
  const Expr read = LowerRead(&test);
  const std::vector<Stmt> shuffles = test.parts().lanes.TakeShuffles();
  ASSERT_EQ(shuffles.size(), 1);
  EXPECT_EQ(shuffles[0]->kind, StmtKind::kShuffle);
  EXPECT_EQ(shuffles[0]->buffer, read->buffer);
  for (int64_t thread : {0, 5, 31})
    EXPECT_EQ(testing::NumberAt(shuffles[0]->operands[0], {{test.nest().stages[2].leaf[1], thread}}), 31 - thread);
  EXPECT_TRUE(test.nest().status.ok());
  EXPECT_TRUE(test.parts().lanes.TakeShuffles().empty()) << "they are taken once";
}

TEST(LaneRegisters, ThreadsOfAnotherWarpCannotBeAsked) {
  testing::TestKernel test(ReadingLanes(64, [](auto& j) { return Sub(IntImm(63), j); }), ByLanes(), 2,
                           "cuda -arch=sm_80");
  LowerRead(&test);
  EXPECT_EQ(test.nest().status,
            absl::InvalidArgumentError("stage y reads p, which lanes have, from threads of another warp"));
}

TEST(LaneRegisters, OtherTargetsKeepThemInSharedMemory) {
  testing::TestKernel test(ReadingLanes(32, [](auto& j) { return Sub(IntImm(31), j); }), ByLanes(), 2, "opencl");
  LowerRead(&test);
  EXPECT_TRUE(test.parts().lanes.TakeShuffles().empty());
  EXPECT_EQ(test.kernel().ElementsOf(1), 32);
}

TEST(LaneRegisters, AllLanesRunAStatementWithShuffles) {
  testing::TestKernel test(ReadingLanes(32, [](auto& j) { return j; }), ByLanes(), 2, "cuda -arch=sm_80");
  const Stmt statement = MakeComment("statement"), shuffle = MakeComment("shuffle");
  LaneRegisters& lanes = test.parts().lanes;
  EXPECT_EQ(lanes.WithShuffles(2, {}, false, statement), statement);
  EXPECT_EQ(lanes.WithShuffles(2, {shuffle}, true, statement)->body, (std::vector<Stmt>{shuffle, statement}));
  EXPECT_TRUE(test.nest().status.ok());
  lanes.WithShuffles(2, {shuffle}, false, statement);
  EXPECT_EQ(test.nest().status,
            absl::InvalidArgumentError("stage y reads what other lanes have where not all of them do"));
}

}  // namespace
}  // namespace diapason
