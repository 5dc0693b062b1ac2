// Which schedule a task without a record gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

}  // namespace
}  // namespace diapason
