#include "scheduler/sketch/warp_loads.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

constexpr int kX = 0, kY = 1, kCopy = 2;

// y[32, 32] = x[32, 32] + 1 in one block whose 32 threads are the rows or the columns, over a copy of x in shared
// memory with `padding` elements behind each row.
struct Tile {
  Tile(int thread_axis, int padding) : skeleton(StateOf(thread_axis, padding)) { skeleton.Infer({}, &bounds); }
  static State StateOf(int thread_axis, int padding) {
    DagBuilder b;
    const int x = b.Placeholder("x", {32, 32});
    const int y = b.Compute("y", {32, 32}, [&](const auto& i) { return Add(b.At(x, i), FloatImm(1)); });
    State state(b.Build({y}).value());
    const int other = 1 - thread_axis;
    const auto annotate = [&](int loop, Annotation annotation) {
      return Step{StepKind::kAnnotate, kY, {loop}, {}, -1, {static_cast<int32_t>(annotation)}};
    };
    // Loops: 2, the block (one), and 3, its threads.
    for (const Step& step :
         {Step{StepKind::kSplit, kY, {thread_axis}, {Factor::Of(32)}}, Step{StepKind::kReorder, kY, {2, 3, other}},
          annotate(2, Annotation::kBlockX), annotate(3, Annotation::kThreadX), annotate(other, Annotation::kUnroll),
          Step{StepKind::kCacheRead, kX, {}, {}, -1, {static_cast<int32_t>(Memory::kShared), kY}},
          Step{StepKind::kComputeAt, kCopy, {2}, {Factor{0}}, kY},
          Step{StepKind::kPadRows, kCopy, {}, {Factor::Of(padding)}}})
      EXPECT_EQ(state.Apply(step), absl::OkStatus());
    return state;
  }
  const Access& access() const { return skeleton.accesses(kY)[0]; }
  WarpLoad Load() const { return LoadOfWarp(skeleton, TargetKind::kOpenCl, bounds, access()); }

  Skeleton skeleton;
  Bounds bounds;
};

TEST(WarpLoads, NeighboursAreInBanksOfTheirOwn) {
  const WarpLoad load = Tile(/*thread_axis=*/1, 0).Load();
  EXPECT_EQ(load.conflict, 1);
  EXPECT_EQ(load.different, 32);
}

TEST(WarpLoads, RowsOf32ElementsMeetInOneBankUnlessTheyArePadded) {
  EXPECT_EQ(Tile(/*thread_axis=*/0, 0).Load().conflict, 32);
  EXPECT_EQ(Tile(/*thread_axis=*/0, 1).Load().conflict, 1);
  EXPECT_EQ(Tile(/*thread_axis=*/0, 4).Load().conflict, 4);
}

TEST(WarpLoads, AnInstructionBringsAsManyNeighboursAsRowsAreAlignedFor) {
  const auto lanes = [](const Tile& tile) { return LanesOfLoad(tile.skeleton, tile.bounds, tile.access(), 2); };
  EXPECT_EQ(lanes(Tile(/*thread_axis=*/0, 0)), 4);
  EXPECT_EQ(lanes(Tile(/*thread_axis=*/0, 2)), 2);
  EXPECT_EQ(lanes(Tile(/*thread_axis=*/0, 1)), 1);
  EXPECT_EQ(lanes(Tile(/*thread_axis=*/1, 0)), 1);  // the body goes down a column
}

}  // namespace
}  // namespace diapason
