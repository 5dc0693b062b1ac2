// Domain and Clamp against what Evaluate says of single candidates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/lower/lower.h"
#include "scheduler/candidate.h"
#include "scheduler/random.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/guard.h"

namespace diapason {
namespace {

using testing::GuardTask;
using testing::NamedDag;

class DomainTest : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Body>
  void ForEachSpace(const Body& body) {
    testing::GuardSettings settings = testing::GuardSettings::FromEnvironment();
    const Target target = Target::Parse(GetParam()).value();
    const std::vector<NamedDag> kinds = testing::AllKinds();
    const std::vector<GuardTask> tasks = testing::TasksToGuard(kinds, settings, target, DefaultFacts(target));
    int64_t spaces = 0;
    for (const GuardTask& task : tasks) {
      for (int i : task.sketches) {
        SCOPED_TRACE(task.task->name + " " + task.space->space(i).name());
        body(task, task.space->space(i));
        ++spaces;
        if (HasFailure()) return;
      }
    }
    testing::Conclude(settings, {"domains,", GetParam(), tasks, 1, spaces});
  }
};

// Whether a value says more stages of a pipeline than it has steps: fewer stand for it.
bool IsWithoutStep(const Space& space, int parameter, std::vector<int32_t> configuration) {
  if (space.parameter_name(parameter) != "stages") return false;
  const int32_t value = configuration[parameter];
  space.Clamp(0, absl::MakeSpan(configuration));
  return configuration[parameter] < value;
}

// The value of the domain that is nearest to `wanted` from below; the least if all are greater.
int32_t NearestIn(const std::vector<int32_t>& domain, int32_t wanted) {
  const auto above = std::upper_bound(domain.begin(), domain.end(), wanted);
  return above == domain.begin() ? domain.front() : *(above - 1);
}

// The values of a domain are those with which the parameters behind can still be filled, at their least: all that any
// candidate has seen in a domain are asked. Stages without a step are left out (below).
TEST_P(DomainTest, HoldsTheValuesThatLeaveALegalCandidate) {
  ForEachSpace([](const GuardTask&, const Space& space) {
    Metrics metrics;
    std::vector<int32_t> values, rest;
    std::vector<std::set<int32_t>> seen(space.size());
    for (int n = 1; n <= 8; ++n) {
      const std::vector<int32_t> configuration = testing::DrawCandidate(space, 1, n);
      space.Evaluate(configuration, &metrics);
      ASSERT_TRUE(metrics.legal);
      for (int parameter = 0; parameter < space.size(); ++parameter) {
        space.Domain(parameter, configuration, &values);
        ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
        seen[parameter].insert(values.begin(), values.end());
        for (int32_t value : seen[parameter]) {
          std::vector<int32_t> trial = configuration;
          trial[parameter] = value;
          for (int h = parameter + 1; h < space.size(); ++h) {
            space.Domain(h, trial, &rest);
            trial[h] = rest.front();
          }
          space.Evaluate(trial, &metrics);
          const bool in_domain = std::binary_search(values.begin(), values.end(), value);
          if (metrics.legal && !in_domain && IsWithoutStep(space, parameter, trial)) continue;
          EXPECT_EQ(metrics.legal, in_domain) << space.parameter_name(parameter) << "=" << value;
        }
      }
    }
  });
}

// Parameter by parameter the nearest value that the domain has: what Clamp finds in fewer steps.
TEST_P(DomainTest, ClampKeepsAsMuchAsItCan) {
  int moved = 0;
  ForEachSpace([&](const GuardTask&, const Space& space) {
    Metrics metrics;
    std::vector<int32_t> values;
    for (int n = 1; n <= 12; ++n) {
      const std::vector<int32_t> one = testing::DrawCandidate(space, 1, n), other = testing::DrawCandidate(space, 2, n);
      std::vector<int32_t> wanted = one;
      Random random(static_cast<uint64_t>(n));
      for (int h = 0; h < space.size(); ++h)
        if (random.Below(2) == 0) wanted[h] = other[h];
      std::vector<int32_t> clamped = wanted, expected = wanted;
      space.Clamp(0, absl::MakeSpan(clamped));
      space.Evaluate(clamped, &metrics);
      ASSERT_TRUE(metrics.legal);
      for (int h = 0; h < space.size(); ++h) {
        space.Domain(h, expected, &values);
        expected[h] = NearestIn(values, expected[h]);
      }
      ASSERT_EQ(clamped, expected);
      moved += clamped != wanted;
    }
  });
  EXPECT_GT(moved, 50);
}

// The program is the same, so that it is measured once.
TEST_P(DomainTest, StagesWithoutAStepMakeTheProgramOfFewer) {
  const Target target = Target::Parse(GetParam()).value();
  int fewer = 0;
  ForEachSpace([&](const GuardTask& task, const Space& space) {
    const auto text = [&](const std::vector<int32_t>& configuration) {
      const auto lowered = Lower(task.task->dag, space.Instantiate(configuration), target, DefaultFacts(target));
      EXPECT_TRUE(lowered.ok()) << lowered.status();
      std::string all;
      for (const KernelFunc& kernel : lowered->kernels) all += ToString(kernel);
      return all;
    };
    const int stages = testing::ParameterOf(space, "stages");
    if (stages < 0) return;
    std::set<int32_t> seen;
    std::vector<int32_t> values;
    for (int n = 1; n <= 8; ++n) {
      space.Domain(stages, testing::DrawCandidate(space, 1, n), &values);
      seen.insert(values.begin(), values.end());
    }
    int compared = 0;
    for (int n = 1; n <= 8 && compared < 2; ++n) {
      std::vector<int32_t> most = testing::DrawCandidate(space, 1, n);
      most[stages] = *seen.rbegin();
      Metrics metrics;
      space.Evaluate(most, &metrics);
      if (!metrics.legal || !IsWithoutStep(space, stages, most)) continue;
      std::vector<int32_t> kept = most;
      space.Clamp(0, absl::MakeSpan(kept));
      EXPECT_EQ(CandidateLike(*task.space, task.space->Find(space.name()), most), kept);
      ASSERT_TRUE(text(most) == text(kept)) << most[stages] << " and " << kept[stages] << " stages";
      ++compared;
    }
    fewer += compared;
  });
  EXPECT_GT(fewer, GetParam() == "cpu" ? -1 : 10);
}

INSTANTIATE_TEST_SUITE_P(Targets, DomainTest, ::testing::Values("cpu", "opencl", "cuda -arch=sm_90"),
                         [](const auto& info) { return info.param.substr(0, info.param.find(' ')); });

}  // namespace
}  // namespace diapason
