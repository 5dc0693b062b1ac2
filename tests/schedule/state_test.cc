// Steps as a peer may send them.
#include "compiler/schedule/state.h"

#include <gtest/gtest.h>

#include <string>

namespace diapason {
namespace {

ComputeDag Sum() {
  DagBuilder b;
  const int x = b.Placeholder("x", {8, 8});
  const int y = b.Compute("y", {8, 8}, [&](const auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  return b.Build({y}).value();
}

TEST(State, CachesAreInAKnownMemory) {
  for (int32_t memory : {-1, 3, 256, 1 << 20}) {
    State state(Sum());
    EXPECT_EQ(state.Apply({StepKind::kCacheWrite, 1, {}, {}, -1, {memory}}),
              absl::InvalidArgumentError("stage y: a cache write names the unknown memory " + std::to_string(memory)));
    EXPECT_EQ(state.Apply({StepKind::kCacheRead, 0, {}, {}, -1, {memory, 1}}),
              absl::InvalidArgumentError("stage x: a cache read names the unknown memory " + std::to_string(memory)));
    EXPECT_EQ(state.size(), 2);
  }
  State state(Sum());
  EXPECT_TRUE(state.Apply({StepKind::kCacheRead, 0, {}, {}, -1, {static_cast<int32_t>(Memory::kLocal), 1}}).ok());
}

// Each stage reads the one before it twice: inlined into each other they are a tree of 2^60 nodes.
TEST(State, AStageThatWouldMakeItsReaderTooLargeIsNotInlined) {
  DagBuilder b;
  int x = b.Placeholder("x", {8});
  for (int n = 0; n < 60; ++n)
    x = b.Compute("y" + std::to_string(n), {8}, [&](const auto& i) { return Mul(b.At(x, i), b.At(x, i)); });
  const ComputeDag dag = b.Build({x}).value();
  State state(dag);
  int inlined = 0;
  absl::Status status;
  for (int stage = dag.size() - 2; stage > 0 && status.ok(); --stage, ++inlined)
    status = state.Apply({StepKind::kInline, stage, {}, {}, -1, {}});
  EXPECT_EQ(status, absl::InvalidArgumentError("stage y" + std::to_string(59 - inlined) +
                                               ": it makes what reads it too large to be inlined"));
  EXPECT_GT(inlined, 10);
  EXPECT_LT(inlined, 25);
}

}  // namespace
}  // namespace diapason
