// Priors that rules declare (Draft::Prior), over all tasks of the built-in networks.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/evolution.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/guard.h"

namespace diapason {
namespace {

using testing::NamedDag;

// What a task's search proposes in its first two rounds.
std::vector<Candidate> FirstCandidates(const TaskSpace& space, int places) {
  EvolutionOptions options;
  options.population = 64;
  options.iterations = 1;
  options.threads = 1;
  TaskSearch search(&space, 1, options);
  std::vector<Candidate> first = search.NextRound(nullptr, places);
  for (Candidate& candidate : search.NextRound(nullptr, places)) first.push_back(std::move(candidate));
  return first;
}

class PriorsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PriorsTest, AreLegalDefaultsAndAmongTheFirstCandidates) {
  const Target target = Target::Parse(GetParam()).value();
  const DeviceFacts facts = DefaultFacts(target);
  int priors = 0;
  for (const NamedDag& task : testing::BuiltinTasks(false)) {
    const auto space = TaskSpace::Create(task.dag, target, facts).value();
    std::vector<Candidate> first;
    for (int i = 0; i < space->size(); ++i) {
      const Space& sketch = space->space(i);
      for (const std::vector<int32_t>& prior : sketch.Priors()) {
        SCOPED_TRACE(task.name + " " + sketch.name());
        ++priors;
        Metrics metrics;
        sketch.Evaluate(prior, &metrics);
        EXPECT_TRUE(metrics.legal);
        EXPECT_EQ(sketch.Default(), prior);
        if (first.empty()) first = FirstCandidates(*space, 8);
        EXPECT_TRUE(std::any_of(first.begin(), first.end(), [&](const Candidate& candidate) {
          return candidate.space == i && candidate.configuration == prior;
        }));
      }
    }
  }
  EXPECT_GE(priors, 20);
}

INSTANTIATE_TEST_SUITE_P(Targets, PriorsTest, ::testing::Values("cuda -arch=sm_90", "opencl"),
                         [](const auto& info) { return info.param.substr(0, info.param.find(' ')); });

}  // namespace
}  // namespace diapason
