// Which schedule a task without a record gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/lower/lower.h"
#include "compiler/schedule/rewrite.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

// The first layers of a network are wide and have few channels, and what they are off by is amplified by all others.
TEST(Fallback, IsNoRewriteThatLosesDigits) {
  const ComputeDag dag = testing::Convolution({.height = 56, .width = 56, .in = 64, .out = 64});
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  double exact = INFINITY, lossy = INFINITY;
  for (int i = 0; i < task->size(); ++i) {
    Metrics metrics;
    task->space(i).Evaluate(task->space(i).Default(), &metrics);
    double& least = LosesDigits(task->space(i).rewrite()) ? lossy : exact;
    least = std::min(least, metrics.seconds);
  }
  EXPECT_LT(lossy, exact) << "the estimate does not prefer one: the test shows nothing";
  EXPECT_EQ(task->DefaultSchedule().rewrite.ToString(), "winograd(2)");
}

// Stages that are tiled each in several ways have a sketch for each combination; only some of them are climbed from.
TEST(Fallback, OfManySketchesIsTheOneWithTheLeastEstimate) {
  DagBuilder b;
  int x = b.Placeholder("x", {48, 64});
  for (int i = 0; i < 4; ++i) {
    const int left = x, weight = b.Placeholder("w", {64, 64});
    x = b.Reduce("product", {48, 64}, {64}, Combiner::kSum, [&](const auto& at, const auto& r) {
      return Mul(b.At(left, {at[0], r[0]}), b.At(weight, {r[0], at[1]}));
    });
  }
  const ComputeDag dag = b.Build({x}).value();
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  ASSERT_GT(task->size(), 96);
  double least = INFINITY;
  std::string best;
  for (int i = 0; i < task->size(); ++i) {
    Metrics metrics;
    task->space(i).Evaluate(task->space(i).Default(), &metrics);
    EXPECT_TRUE(metrics.legal) << task->space(i).name();
    if (metrics.seconds >= least) continue;
    least = metrics.seconds;
    best = task->space(i).name();
  }
  EXPECT_EQ(task->DefaultSchedule().sketch, best);
}

bool HasVectorLoop(const Stmt& stmt) {
  if (stmt == nullptr) return false;
  if (stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kVectorize && stmt->extent > 1) return true;
  return std::any_of(stmt->body.begin(), stmt->body.end(), HasVectorLoop);
}

// At each load of a package and for each candidate: 50 to 80 ms for 512x512 weights without vectors.
TEST(Fallback, TransformsOfWeightsComputeVectors) {
  const ComputeDag dag = testing::Convolution({.height = 14, .width = 14, .in = 256, .out = 256});
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto task = TaskSpace::Create(dag, target, facts).value();
  int transforms = 0;
  for (int i = 0; i < task->size(); ++i) {
    const Space& space = task->space(i);
    if (space.rewrite().ToString().rfind("winograd", 0) != 0) continue;
    const LoweredProgram program = Lower(dag, space.Instantiate(space.Default()), target, facts).value();
    ASSERT_FALSE(program.prologue.empty());
    EXPECT_TRUE(HasVectorLoop(program.prologue[0].body)) << ToString(program.prologue[0]);
    ++transforms;
  }
  EXPECT_GT(transforms, 0);
}

}  // namespace
}  // namespace diapason
