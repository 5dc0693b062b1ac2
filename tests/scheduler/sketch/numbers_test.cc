// The guard: what Evaluate says of a candidate from its numbers is what is counted on the loop nest that it lowers to,
// and every element that the nest touches lies in its buffer. bench/guard.sh runs it over a thousand candidates of each
// sketch.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/lower/lower.h"
#include "scheduler/random.h"
#include "scheduler/sketch/sketch_space.h"
#include "tests/scheduler/sketch/count.h"
#include "tests/scheduler/sketch/guard.h"

namespace diapason {
namespace {

using testing::Counted;
using testing::GuardTask;
using testing::NamedDag;

Target TargetOf(const std::string& text) { return Target::Parse(text).value(); }

std::string KindOf(const std::string& target) { return target.substr(0, target.find(' ')); }

// Sizes and executions of one stage of a kernel.
void CompareStage(const SketchSpace& space, const Bounds& bounds, int id, const Counted& counted) {
  const StageState& stage = space.skeleton().state().stage(id);
  if (auto it = counted.buffers.find(id); it != counted.buffers.end()) {
    const StageBounds& b = bounds.stages[id];
    const bool registers = stage.memory == Memory::kLanes && it->second.scope == Scope::kLocal;
    const int64_t stored = registers ? ElementsOfThread(stage, b) : b.stored();
    EXPECT_EQ(stored, it->second.elements) << stage.op.name;
    // All of the buffer is used, but for the padding behind its rows and between its slots or the results of sets of
    // threads.
    const bool whole_slots = b.slots * b.thread_sets > 1 || b.bulk;
    const int64_t padding =
        (b.core_row > 0 ? b.core_row : b.row_padding) + (whole_slots ? b.slot_stride() - b.elements() : 0);
    EXPECT_GE(counted.reached.at(id) + padding, stored) << stage.op.name << " is larger than what is put there";
  }
  const double expected = space.model().Executions(bounds, id);
  if (stage.bulk) {
    double tile = 1;
    for (int64_t extent : bounds.stages[id].buffer) tile *= static_cast<double>(extent);
    ASSERT_TRUE(counted.bulk_copies.count(id)) << stage.op.name << " is not copied";
    EXPECT_EQ(expected, counted.bulk_copies.at(id) * tile) << stage.op.name;
    return;
  }
  if (counted.tensor_copies.count(id)) {
    EXPECT_TRUE(IsMadeByTensorCopies(stage, bounds.stages[id])) << stage.op.name;
    return;
  }
  if (stage.op.reduces()) {
    const std::vector<Counted::Store> stores = counted.StoresFor(id);
    bool found = std::any_of(stores.begin(), stores.end(),
                             [&](const Counted::Store& store) { return store.update && store.times == expected; });
    for (const auto& [buffer, products] : counted.products) found |= products == expected;
    EXPECT_TRUE(found) << stage.op.name << " is not updated " << expected << " times";
  } else {
    ASSERT_TRUE(counted.stores.count(id)) << stage.op.name << " is not stored";
    // What sets of threads have stored is summed in its place.
    std::vector<Counted::Store> stores = counted.stores.at(id);
    std::erase_if(stores, [](const Counted::Store& store) { return store.update; });
    ASSERT_FALSE(stores.empty()) << stage.op.name << " is not stored";
    double times = stores.back().times;
    // The first copies of a pipeline of warpgroups stand before its loop.
    if (stage.memory == Memory::kShared && stores.size() == 2) times += stores.front().times;
    EXPECT_EQ(expected, times) << stage.op.name;
  }
}

void CompareKernel(const SketchSpace& space, const Bounds& bounds, const MetricsModel::Resources& resources,
                   const KernelFunc& kernel) {
  const Counted counted = testing::Count(kernel);
  EXPECT_EQ(resources.threads + kernel.producers, counted.threads);
  EXPECT_EQ(resources.blocks, counted.blocks);
  EXPECT_EQ(resources.cluster, counted.cluster);
  EXPECT_EQ(resources.shared_bytes, counted.shared_bytes);
  EXPECT_EQ(kernel.threads, counted.threads);
  EXPECT_EQ(kernel.blocks, counted.blocks);
  EXPECT_EQ(kernel.cluster, counted.cluster);
  EXPECT_EQ(kernel.shared_bytes, counted.shared_bytes);
  for (int id : space.skeleton().state().topological()) {
    if (!space.skeleton().state().stage(id).computes() || space.skeleton().root_of(id) != resources.root) continue;
    CompareStage(space, bounds, id, counted);
  }
}

class NumbersTest : public ::testing::TestWithParam<std::string> {
 protected:
  const testing::GuardSettings settings_ = testing::GuardSettings::FromEnvironment();
  const testing::GuardClock clock_{settings_};
  Target target_ = TargetOf(GetParam());
  DeviceFacts facts_ = DefaultFacts(target_);

  void CompareCandidate(const ComputeDag& dag, const SketchSpace& space, absl::Span<const int32_t> configuration) {
    Metrics metrics;
    space.Evaluate(configuration, &metrics);
    EXPECT_TRUE(metrics.legal);
    // As builders get it.
    const absl::StatusOr<Schedule> schedule = ParseSchedule(SerializeSchedule(space.Instantiate(configuration)));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto lowered = Lower(dag, *schedule, target_, facts_);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    Bounds bounds;
    space.skeleton().Infer(configuration, &bounds);
    std::vector<MetricsModel::Resources> resources;
    space.model().ResourcesOf(bounds, &resources);
    ASSERT_EQ(resources.size(), lowered->kernels.size());
    for (size_t k = 0; k < resources.size(); ++k) {
      const KernelFunc& kernel = lowered->kernels[k];
      CompareKernel(space, bounds, resources[k], kernel);
      EXPECT_EQ(testing::CheckAccesses(kernel, settings_.seed, 6), "");
      if (HasFailure()) ADD_FAILURE() << ToString(kernel);
    }
    for (const KernelFunc& kernel : lowered->prologue) EXPECT_EQ(testing::CheckAccesses(kernel, settings_.seed, 6), "");
  }

  // Returns how many candidates were compared; stops at the first that fails.
  int64_t CompareAll(const std::vector<GuardTask>& tasks, int candidates) {
    int64_t compared = 0;
    for (const GuardTask& task : tasks) {
      for (int i : task.sketches) {
        const auto& space = static_cast<const SketchSpace&>(task.space->space(i));
        for (int n = 0; n < candidates; ++n, ++compared) {
          if (HasFailure() || clock_.Over()) return compared;
          const std::vector<int32_t> configuration = testing::DrawCandidate(space, settings_.seed, n);
          const std::string what = testing::Describe(task.task->name, space, n, configuration);
          SCOPED_TRACE(what);
          clock_.Begin(what);
          CompareCandidate(task.task->dag, space, configuration);
        }
      }
    }
    return compared;
  }

  // So many candidates of each sketch that has `part` in its name, of all these tasks: 30 at least.
  void CompareSketches(const std::vector<NamedDag>& kinds, const std::string& part, int candidates) {
    testing::GuardSettings settings = settings_;
    settings.sketch = part;
    const auto tasks = testing::TasksToGuard(kinds, settings, target_, facts_);
    if (settings_.candidates > 0) candidates = settings_.candidates;
    const int64_t compared = CompareAll(tasks, candidates);
    if (settings_.whole()) {
      EXPECT_GE(compared, 30);
    }
    testing::Conclude(settings, {"numbers of " + part + ",", KindOf(GetParam()), tasks, candidates, compared});
  }
};

TEST_P(NumbersTest, AgreeWithTheLoweredNestsOfAllKindsOfTasks) {
  facts_.l2_bytes = 0;  // blocks in groups are a parameter
  const std::vector<NamedDag> kinds = testing::AllKinds();
  const auto tasks = testing::TasksToGuard(kinds, settings_, target_, facts_);
  const int candidates = settings_.candidates > 0 ? settings_.candidates : 30;
  const int64_t compared = CompareAll(tasks, candidates);
  testing::Conclude(settings_, {"numbers of all kinds,", KindOf(GetParam()), tasks, candidates, compared});
}

TEST_P(NumbersTest, AgreeWithTheLoweredNestsOfTheBuiltInTasks) {
  const std::vector<NamedDag> builtin = testing::BuiltinTasks(/*full_size=*/true);
  const auto tasks = testing::TasksToGuard(builtin, settings_, target_, facts_);
  const int candidates = settings_.candidates > 0 ? settings_.candidates : 3;
  const int64_t compared = CompareAll(tasks, candidates);
  testing::Conclude(settings_, {"numbers of built-in tasks,", KindOf(GetParam()), tasks, candidates, compared});
}

// Threads keep what they have evaluated, to spare allocations: no number may come from there.
TEST_P(NumbersTest, AreTheSameWhateverTheThreadHasEvaluatedBefore) {
  const auto tasks = testing::TasksToGuard(testing::BuiltinTasks(/*full_size=*/true), settings_, target_, facts_);
  struct Candidate {
    const Space* space;
    std::vector<int32_t> configuration;
    Metrics fresh;
  };
  std::vector<Candidate> candidates;
  for (const GuardTask& task : tasks)
    for (int i : task.sketches) {
      const Space& space = task.space->space(i);
      candidates.push_back({&space, space.Default(), {}});
      std::thread([&one = candidates.back()] { one.space->Evaluate(one.configuration, &one.fresh); }).join();
    }
  std::reverse(candidates.begin(), candidates.end());
  for (int round = 0; round < 2; ++round)
    for (const Candidate& one : candidates) {
      Metrics metrics;
      one.space->Evaluate(one.configuration, &metrics);
      ASSERT_EQ(metrics.seconds, one.fresh.seconds) << one.space->name();
      ASSERT_TRUE(std::equal(std::begin(metrics.features), std::end(metrics.features), one.fresh.features))
          << one.space->name();
    }
  EXPECT_GT(candidates.size(), settings_.whole() ? 50u : 0u);
}

TEST_P(NumbersTest, AgreeForProductsOfWarpgroups) {
  if (!target_.is_gpu()) GTEST_SKIP() << "cpu has no warpgroups";
  facts_.num_cores = 1;
  CompareSketches(testing::LargerProducts(), "wgmma", 30);
}

TEST_P(NumbersTest, AgreeForProductsOfWarpgroupsOverACluster) {
  if (!target_.is_gpu()) GTEST_SKIP() << "cpu has no warpgroups";
  facts_.num_cores = 8;
  CompareSketches(testing::LargerProducts(), "cluster_wgmma", 30);
}

TEST_P(NumbersTest, AgreeForProductsOfRoundedFactors) {
  if (target_.kind != TargetKind::kCuda) GTEST_SKIP() << "they are cuda's";
  target_ = TargetOf(GetParam() + " -tf32");
  for (const int cores : {1, 8}) {
    facts_.num_cores = cores;
    CompareSketches(testing::LargerProducts(), "tf32", 20);
  }
  CompareSketches(testing::Attentions(), "tf32", 10);
}

TEST_P(NumbersTest, AgreeForOperandsThatAreReadEarly) {
  if (!target_.is_gpu()) GTEST_SKIP() << "cpu has no tensor cores";
  facts_.num_cores = 1;
  CompareSketches(testing::LinearLayers(), "early", 30);
}

TEST_P(NumbersTest, AgreeForStrassensProducts) {
  facts_.bandwidth = 1e30;  // pays for products of any size
  CompareSketches(testing::EvenProducts(), "strassen", 10);
}

TEST_P(NumbersTest, AgreeForAttention) {
  CompareSketches(testing::Attentions(), "attention", 10);
  CompareSketches(testing::ExportedAttentions(), "attention", 10);
}

TEST_P(NumbersTest, AgreeForRowProducts) {
  if (!target_.is_gpu()) GTEST_SKIP() << "cpu has no sets of threads";
  CompareSketches(testing::RowProducts(), "stream", 10);
}
TEST_P(NumbersTest, AgreeForRowReductions) { CompareSketches(testing::RowChains(), "row", 10); }

INSTANTIATE_TEST_SUITE_P(Targets, NumbersTest, ::testing::Values("cpu", "opencl", "cuda -arch=sm_90"),
                         [](const auto& info) { return KindOf(info.param); });

}  // namespace
}  // namespace diapason
