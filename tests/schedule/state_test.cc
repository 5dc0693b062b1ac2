// Steps as a peer may send them.
#include "compiler/schedule/state.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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

TEST(State, ConstantsOfFloat32AreRoundedOnce) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4, 8}), w = b.Constant("w", {8, 8}), h = b.Constant("h", {4, 8}, DType::kFloat16);
  const int t = b.Compute("t", {8, 8}, [&](const auto& i) { return b.At(w, {i[1], i[0]}); });
  const int y = b.Reduce("y", {4, 8}, {8}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(t, {i[1], r[0]}));
  });
  const int z =
      b.Compute("z", {4, 8}, [&](const auto& i) { return Add(b.At(y, i), Cast(DType::kFloat32, b.At(h, i))); });
  const ComputeDag dag = b.Build({z}).value();
  const auto round = [](State& state, int stage) {
    return state.Apply({StepKind::kRoundFactors, stage, {}, {}, -1, {}});
  };
  // What is computed from a constant is itself rounded; of a constant a new stage holds the rounded elements.
  State computed(dag), read(dag);
  ASSERT_TRUE(round(computed, t).ok());
  EXPECT_EQ(computed.size(), dag.size());
  EXPECT_TRUE(computed.stage(t).rounded);
  EXPECT_EQ(computed.stage(t).op.body->name, "tf32");
  ASSERT_TRUE(round(read, w).ok());
  ASSERT_EQ(read.size(), dag.size() + 1);
  EXPECT_EQ(read.stage(dag.size()).op.name, "w.rounded");
  EXPECT_TRUE(read.stage(dag.size()).prologue);
  EXPECT_EQ(read.Producers(t), std::vector<int>{dag.size()});
  const auto refusal = [](const char* name) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", name, ": only constants of float32 are rounded at build time, once"));
  };
  EXPECT_EQ(round(computed, t), refusal("t"));
  EXPECT_EQ(round(computed, x), refusal("x"));
  EXPECT_EQ(round(computed, h), refusal("h"));
  EXPECT_EQ(round(computed, y), refusal("y"));
}

// A softmax whose maximum and sum are carried by the loop of the sum.
TEST(State, OnlySumsOfExponentialsAreCarriedWithAMaximum) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4, 32});
  const auto max = [&](const char* name, int of) {
    return b.Reduce(name, {4}, {32}, Combiner::kMax, [&, of](const auto& i, const auto& r) {
      return b.At(of, {i[0], r[0]});
    });
  };
  const int top = max("top", x);
  const auto exponentials = [&](const char* name, bool relative) {
    const int e = b.Compute(absl::StrCat(name, ".e"), {4, 32}, [&](const auto& i) {
      return Call("exp", {relative ? Sub(b.At(x, i), b.At(top, {i[0]})) : Add(b.At(x, i), b.At(top, {i[0]}))});
    });
    return b.Reduce(name, {4}, {32}, Combiner::kSum, [&](const auto& i, const auto& r) {
      return b.At(e, {i[0], r[0]});
    });
  };
  const int sum = exponentials("sum", true), other = exponentials("other", false);
  const int y = b.Compute("y", {4}, [&](const auto& i) { return Add(b.At(sum, i), b.At(other, i)); });
  State state(b.Build({y}).value());
  const int kLoop = 2, kPart = 3;  // pieces of the axes of sums
  for (int stage : {sum, other, top})
    ASSERT_TRUE(state.Apply({StepKind::kSplit, stage, {1}, {Factor::Of(8)}, -1, {}}).ok());
  const auto carry = [&](int stage, int loop, int target, int target_loop, int maximum) {
    return std::string(state.Apply({StepKind::kCarry, stage, {loop}, {}, target, {target_loop, maximum}}).message());
  };
  EXPECT_EQ(carry(top, kLoop, sum, kLoop, -1), "stage top: a reduction is carried by the loop at which it is computed");
  EXPECT_EQ(carry(sum, kPart, sum, kPart, -1),
            "stage sum: a reduction is carried by the outermost loop of its first axis, which is split");
  EXPECT_EQ(carry(sum, kLoop, sum, kLoop, -1), "stage sum: what is carried without a maximum is one");
  EXPECT_EQ(carry(sum, kLoop, sum, kLoop, 99), "stage sum: its maximum is not computed at the loop that carries it");
  for (const std::vector<int32_t>& ints : {std::vector<int32_t>{}, {1}, {1, 2, 3}})
    EXPECT_FALSE(state.Apply({StepKind::kCarry, sum, {kLoop}, {}, sum, ints}).ok());
  EXPECT_FALSE(state.Apply({StepKind::kCarry, sum, {kLoop}, {}, 99, {kLoop, -1}}).ok());
  // The maximum of parts that the loop carries.
  ASSERT_TRUE(state.Apply({StepKind::kRfactor, top, {kPart}, {}, -1, {}}).ok());
  const int parts = state.size() - 1;
  ASSERT_TRUE(state.Apply({StepKind::kSplit, parts, {2}, {Factor::Of(1)}, -1, {}}).ok());
  for (int target : {sum, other}) {
    for (int stage : {top, parts})
      ASSERT_TRUE(state.Apply({StepKind::kComputeAt, stage, {kLoop}, {Factor::Of(0)}, target, {}}).ok());
    EXPECT_EQ(carry(target, kLoop, target, kLoop, top),
              "stage top: it is no maximum of maxima that the same loop carries");
    ASSERT_EQ(carry(parts, 3, target, kLoop, -1), "");
    EXPECT_EQ(carry(target, kLoop, target, kLoop, top),
              target == sum ? "" : "stage other: its terms are no exponentials relative to the maximum");
  }
}

}  // namespace
}  // namespace diapason
