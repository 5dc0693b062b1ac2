// Products on tensor cores, lane by lane: the fragments of each operand however it lies in memory, and the order of the sums.
#include <gtest/gtest.h>

#include <random>

#include "compiler/codegen/passes.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();

// x[m][k] or x[k][m] by w[k][n] or w[n][k], the factors in either order.
ComputeDag Product(int64_t m, int64_t n, int64_t k, bool x_by_k, bool w_by_n, bool swapped, Combiner combiner = Combiner::kSum) {
  DagBuilder b;
  const int x = b.Placeholder("x", x_by_k ? std::vector<int64_t>{k, m} : std::vector<int64_t>{m, k});
  const int w = b.Constant("w", w_by_n ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n});
  const int c = b.Reduce("c", {m, n}, {k}, combiner, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
    const Expr left = x_by_k ? b.At(x, {r[0], i[0]}) : b.At(x, {i[0], r[0]});
    const Expr right = w_by_n ? b.At(w, {i[1], r[0]}) : b.At(w, {r[0], i[1]});
    return swapped ? Mul(right, left) : Mul(left, right);
  });
  return b.Build({c}).value();
}

// Decisions drawn at random, with some said.
std::vector<int32_t> Draw(const Space& space, const std::map<std::string, int32_t>& said, std::mt19937& random) {
  std::vector<int32_t> decisions(space.size()), values;
  for (int h = 0; h < space.size(); ++h) {
    space.Domain(h, decisions, &values);
    const std::string level = space.hole_name(h).substr(space.hole_name(h).find('.') + 1);
    auto wanted = said.find(space.hole_name(h));
    if (wanted == said.end()) wanted = said.find(level);
    const bool legal = wanted != said.end() && std::find(values.begin(), values.end(), wanted->second) != values.end();
    decisions[h] = legal ? wanted->second : values[random() % values.size()];
  }
  return decisions;
}

TEST(TensorProducts, LanesBringTheElementsOfTheirProducts) {
  std::mt19937 random(3);
  int matrices = 0, elements = 0;
  for (int form = 0; form < 8; ++form) {
    const ComputeDag dag = Product(33, 20, 72, form & 1, form & 2, form & 4);
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_GE(task->Find("direct/tensor"), 0);
    const Space* space = &task->space(task->Find("direct/tensor"));
    for (int n = 0; n < 3; ++n) {
      const std::vector<int32_t> decisions = Draw(*space, {{"warps", 1}}, random);
      const auto lowered = Lower(dag, space->Instantiate(decisions), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      SCOPED_TRACE(form);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
      // One operand at least, of those with k innermost, comes as matrices.
      const bool found = Contains(
          lowered->kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kLoadMatrix; });
      ++(found ? matrices : elements);
      EXPECT_EQ(found, !(form & 1) || (form & 2));
    }
  }
  EXPECT_GT(matrices, 0);
  EXPECT_GT(elements, 0);
}

// More sums than are held twice are added product by product.
TEST(TensorProducts, ManySumsOfALane) {
  std::mt19937 random(5);
  const ComputeDag dag = Product(64, 64, 80, false, false, false);
  const testing::Reference expected = testing::MakeReference(dag, 9);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/tensor"), 0);
  const Space* space = &task->space(task->Find("direct/tensor"));
  for (int32_t k : {8, 16, 32})
    for (int32_t tiles : {1, 4}) {
      const std::vector<int32_t> decisions =
          Draw(*space, {{"warps", 1}, {"i0.tiles", tiles}, {"i1.tiles", 8}, {"r2", k}, {"r1", 1}}, random);
      const auto lowered = Lower(dag, space->Instantiate(decisions), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected)) << k << " " << tiles;
    }
}

// The window moves over what lies in shared memory: rows of the window that begin anywhere, and channels that a tile does not divide.
TEST(TensorProducts, WindowsMoveOverOneCopyOfTheImage) {
  std::mt19937 random(11);
  for (const testing::ConvShape& shape : {testing::ConvShape{17, 19, 3, 20, 7, 2, 3}, testing::ConvShape{9, 15, 5, 16, 3, 1, 1}}) {
    const ComputeDag dag = testing::Convolution(shape, true);
    const testing::Reference expected = testing::MakeReference(dag, 13);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_GE(task->Find("rows/tensor"), 0);
    const Space* space = &task->space(task->Find("rows/tensor"));
    for (int n = 0; n < 4; ++n) {
      const std::vector<int32_t> decisions = Draw(*space, {{"warps", 1 + n % 2}}, random);
      const auto lowered = Lower(dag, space->Instantiate(decisions), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_TRUE(Contains(lowered->kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kMma; }));
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected)) << n;
    }
  }
}

// Steps of one dag on another, as a damaged or foreign schedule would have them.
TEST(TensorProducts, WhatLanesCannotMakeIsRefused) {
  const ComputeDag sum = Product(32, 16, 64, false, false, false);
  const ComputeDag greatest = Product(32, 16, 64, false, false, false, Combiner::kMax);
  const auto task = TaskSpace::Create(sum, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/tensor"), 0);
  const Space* space = &task->space(task->Find("direct/tensor"));
  Schedule schedule = space->Instantiate(space->Default());
  ASSERT_TRUE(Lower(sum, schedule, kCuda, DefaultFacts(kCuda)).ok());
  EXPECT_EQ(Lower(greatest, schedule, kCuda, DefaultFacts(kCuda)).status(),
            absl::InvalidArgumentError("stage c.acc: tensor cores take a sum of products of two copies"));
  for (Step& step : schedule.steps)
    if (step.kind == StepKind::kTensorize) std::swap(step.ints[1], step.ints[2]);
  const absl::Status lanes = Lower(sum, schedule, kCuda, DefaultFacts(kCuda)).status();
  EXPECT_EQ(lanes, absl::InvalidArgumentError("stage c.acc: tensor cores take 8 x 4 lanes"));
}

}  // namespace
}  // namespace diapason
