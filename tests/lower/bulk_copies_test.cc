#include "compiler/lower/bulk_copies.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Sums of the rows of a constant, eight a block, from a copy of its tile; stages 0 to 3: w, y, the copy, the tiles.
constexpr int kRows = 1, kTile = 2;
ComputeDag RowsOfConstant() {
  DagBuilder b;
  const int w = b.Constant("w", {32, 16});
  const int y = b.Reduce("y", {32}, {16}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(w, {i[0], r[0]}); });
  return b.Build({y}).value();
}

std::vector<Step> TileByTile(Annotation outer) {
  return {testing::SplitStep(kRows, 0, {8}),
          testing::AnnotateStep(kRows, 2, outer),
          testing::AnnotateStep(kRows, 3, Annotation::kThreadX),
          testing::SplitStep(kRows, 1, {16}),
          {StepKind::kCacheRead, 0, {}, {}, -1, {static_cast<int>(Memory::kShared), kRows}},
          testing::ComputeAtStep(kTile, kRows, 4),
          testing::NumberStep(StepKind::kBulkCopy, kTile, 1)};
}

TEST(BulkCopies, OneThreadAsksForATileAndAllWaitForIt) {
  testing::TestKernel test(RowsOfConstant(), TileByTile(Annotation::kBlockX), kRows, "cuda -arch=sm_90");
  EXPECT_TRUE(CheckBulkCopy(test.kernel(), kTile).ok());
  const StageValues& y = test.Prepared(kRows);
  BulkCopies copies(&test.nest());
  const Stmt asked = copies.AskOnce(kRows, 2);
  ASSERT_EQ(asked->kind, StmtKind::kIf) << ToString(asked);
  EXPECT_EQ(ToString(asked->condition), y.leaf[1]->name + " == 0");
  const std::vector<Stmt>& alone = asked->body[0]->body;
  ASSERT_EQ(alone.size(), 2);
  EXPECT_EQ(alone[0]->mbarrier, MbarrierOp::kInit);
  const Stmt copy = alone[1];
  ASSERT_EQ(copy->kind, StmtKind::kBulkCopy);
  EXPECT_EQ(copy->extent, 8 * 16);
  EXPECT_EQ(testing::NumberAt(copy->value->args[0], {{y.leaf[0], 3}}), 3 * 8 * 16) << "the block's tile";
  const Stmt awaited = copies.AwaitOnce(kRows, 2);
  EXPECT_EQ(awaited->mbarrier, MbarrierOp::kWait);
}

TEST(BulkCopies, OtherTargetsHaveNoBarriersForThem) {
  testing::TestKernel test(RowsOfConstant(), TileByTile(Annotation::kBlockX), kRows, "opencl");
  test.Prepared(kRows);
  BulkCopies copies(&test.nest());
  EXPECT_EQ(copies.AskOnce(kRows, 2)->kind, StmtKind::kBulkCopy);
  EXPECT_EQ(copies.AwaitOnce(kRows, 2), nullptr);
}

TEST(BulkCopies, AThreadAsksOnce) {
  testing::TestKernel test(RowsOfConstant(), TileByTile(Annotation::kNone), kRows, "cuda -arch=sm_90");
  EXPECT_EQ(CheckBulkCopy(test.kernel(), kTile),
            absl::InvalidArgumentError("stage w.shared: copies of a tile at a time take one pipeline that runs once"));
}

}  // namespace
}  // namespace diapason
