#include "scheduler/task_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

// The cost model compares labels of one key.
uint64_t KeyOfSamples(const std::string& target, const std::string& model) {
  TunerOptions options;
  options.target = Target::Parse(target).value();
  options.facts.model = model;
  options.make_space = [](const ComputeDag& dag, const Target&,
                          const DeviceFacts&) -> absl::StatusOr<std::unique_ptr<TaskSpace>> {
    std::vector<std::unique_ptr<Space>> spaces;
    spaces.push_back(std::make_unique<FakeSpace>(FakeSpace::Options{}));
    return std::make_unique<TaskSpace>(dag, std::move(spaces));
  };
  const ComputeDag dag = FakeDag(8);
  const auto state = TaskState::Create(0, {"sum", dag, dag.workload_key(), {{"network", 1}}}, options);
  EXPECT_TRUE(state.ok()) << state.status();
  TrialResult result;
  result.space = 0;
  result.configuration = (*state)->default_candidate().configuration;
  result.hash = (*state)->default_candidate().hash;
  result.seconds = 1e-6;
  return (*state)->Add(std::move(result)).task;
}

TEST(TaskState, TimesOfOtherDevicesAndCachesAreLearnedApart) {
  EXPECT_EQ(KeyOfSamples("cuda -arch=sm_90", "NVIDIA H200"),
            KeyOfSamples("cuda -arch=sm_90 -libs=cublas", "NVIDIA H200"));
  const std::set<uint64_t> apart = {KeyOfSamples("cuda -arch=sm_90", "NVIDIA H200"),
                                    KeyOfSamples("cuda -arch=sm_90", "NVIDIA H100"),
                                    KeyOfSamples("cuda -arch=sm_90 -caches=warm", "NVIDIA H200"),
                                    KeyOfSamples("cuda -arch=sm_90 -caches=flushed", "NVIDIA H200")};
  EXPECT_EQ(apart.size(), 4u);
}

}  // namespace
}  // namespace diapason
