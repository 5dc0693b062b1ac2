// The guard: what candidates compute is what the dag says. bench/guard.sh runs it over 200 candidates of each sketch.
#include "tests/scheduler/sketch/execute.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "scheduler/random.h"
#include "scheduler/space.h"
#include "tests/paths.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/guard.h"

namespace diapason {
namespace {

using testing::GuardTask;
using testing::NamedDag;
using testing::Reference;

constexpr uint64_t kInputs = 5;
// Wrong candidates to report before giving up.
constexpr int kMaxWrong = 10;

class ExecuteTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto device = OpenDevice(target_);
    if (!device.ok() && (target_.kind == TargetKind::kCuda || MayLack(GetParam())))
      GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    facts_ = device_->facts();
  }

  // A candidate that does not compute the reference is a failure of the test.
  void Compare(const ComputeDag& dag, const Space& space, absl::Span<const int32_t> configuration,
               const Reference& reference) {
    // As builders get it.
    const absl::StatusOr<Schedule> schedule = ParseSchedule(SerializeSchedule(space.Instantiate(configuration)));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto lowered = Lower(dag, *schedule, target_, facts_);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, target_);
    ASSERT_TRUE(program.ok()) << program.status() << "\n" << PrintSource(*lowered, target_);
    const std::string wrong = testing::CompareOnDevice(*device_, *program, dag, reference);
    EXPECT_EQ(wrong, "") << (wrong_++ == 0 ? program->source : "");
  }

  void RunCandidate(const GuardTask& task, int sketch, int number, const Reference& reference) {
    const Space& space = task.space->space(sketch);
    const std::vector<int32_t> configuration = testing::DrawCandidate(space, settings_.seed, number);
    const std::string what = testing::Describe(task.task->name, space, number, configuration);
    SCOPED_TRACE(what);
    clock_.Begin(what);
    Compare(task.task->dag, space, configuration, reference);
  }

  // Candidates of the sketches that have `part` in their names, of all these tasks.
  void RunSketches(const std::vector<NamedDag>& kinds, const std::string& part) {
    testing::GuardSettings settings = settings_;
    settings.sketch = part;
    const auto tasks = testing::TasksToGuard(kinds, settings, target_, facts_);
    const int candidates = settings_.candidates > 0 ? settings_.candidates : 2;
    int64_t run = 0;
    for (const GuardTask& task : tasks) {
      const Reference reference = testing::MakeReference(task.task->dag, kInputs);
      for (int sketch : task.sketches)
        for (int n = 0; n < candidates && !Enough(); ++n, ++run) RunCandidate(task, sketch, n, reference);
    }
    testing::Conclude(settings, {"execution of " + part + ",", GetParam(), tasks, candidates, run});
  }

  bool Enough() const { return wrong_ >= kMaxWrong || HasFatalFailure() || clock_.Over(); }

  const testing::GuardSettings settings_ = testing::GuardSettings::FromEnvironment();
  const testing::GuardClock clock_{settings_};
  const Target target_ = Target::Parse(GetParam()).value();
  std::unique_ptr<Device> device_;
  DeviceFacts facts_;
  int wrong_ = 0;
};

TEST_P(ExecuteTest, CandidatesOfAllKindsOfTasksComputeTheDag) {
  const std::vector<NamedDag> kinds = testing::AllKinds();
  facts_.l2_bytes = target_.is_gpu() ? 0 : facts_.l2_bytes;  // blocks in groups are a parameter
  const auto tasks = testing::TasksToGuard(kinds, settings_, target_, facts_);
  const int candidates = settings_.candidates > 0 ? settings_.candidates : 2;
  int64_t run = 0;
  for (const GuardTask& task : tasks) {
    const Reference reference = testing::MakeReference(task.task->dag, kInputs);
    for (int sketch : task.sketches)
      for (int n = 0; n < candidates && !Enough(); ++n, ++run) RunCandidate(task, sketch, n, reference);
  }
  testing::Conclude(settings_, {"execution of all kinds,", GetParam(), tasks, candidates, run});
}

// Without DIAPASON_CANDIDATES one random candidate of some sketches, others for each seed.
TEST_P(ExecuteTest, CandidatesOfTheBuiltInTasksComputeTheDag) {
  constexpr uint32_t kShare = 12;  // of the sketches, one in so many
  const bool all = settings_.candidates > 0;
  const std::vector<NamedDag> builtin = testing::BuiltinTasks(settings_.full_size);
  std::vector<GuardTask> tasks = testing::TasksToGuard(builtin, settings_, target_, device_->facts());
  Random choice(settings_.seed);
  if (!all) {
    for (GuardTask& task : tasks) std::erase_if(task.sketches, [&](int) { return choice.Below(kShare) != 0; });
    std::erase_if(tasks, [](const GuardTask& task) { return task.sketches.empty(); });
  }
  std::vector<Reference> references;
  for (const GuardTask& task : tasks) {
    auto reference = testing::MakeReferenceOnDevice(*device_, target_, task.task->dag, kInputs);
    ASSERT_TRUE(reference.ok()) << task.task->name << ": " << reference.status();
    references.push_back(*std::move(reference));
  }
  // Number by number, so that all sketches are served alike when the time is limited.
  int64_t run = 0;
  for (int n = all ? 0 : 1; n < (all ? settings_.candidates : 2); ++n)
    for (size_t t = 0; t < tasks.size(); ++t)
      for (size_t i = 0; i < tasks[t].sketches.size() && !Enough(); ++i, ++run)
        RunCandidate(tasks[t], tasks[t].sketches[i], n, references[t]);
  testing::Conclude(settings_,
                    {"execution of built-in tasks,", GetParam(), tasks, all ? settings_.candidates : 1, run});
}

// Pipelines whose slices end within a tile: the steps of a work group stand under conditions that PoCL must not split.
TEST_P(ExecuteTest, PipelinesOfSplitReductionsEndWhereTheirSlicesEnd) {
  if (GetParam() == "cpu") GTEST_SKIP() << "cpu has no shared copies";
  testing::GuardSettings settings;
  settings.task = "conv3x3_deep";
  settings.sketch = "gemm/split2.reduce.tile";
  settings.seed = 7;
  const std::vector<NamedDag> kinds = testing::AllKinds();
  const auto tasks = testing::TasksToGuard(kinds, settings, target_, device_->facts());
  ASSERT_EQ(tasks.size(), 1u);
  const Reference reference = testing::MakeReference(tasks[0].task->dag, kInputs);
  int pipelines = 0;
  for (int sketch : tasks[0].sketches) {
    const Space& space = tasks[0].space->space(sketch);
    for (int n = 0; n < 40 && pipelines < 4; ++n) {
      const std::vector<int32_t> configuration = testing::DrawCandidate(space, settings.seed, n);
      const std::string what = testing::Describe("conv3x3_deep", space, n, configuration);
      if (what.find("stages=3") == std::string::npos) continue;
      ++pipelines;
      SCOPED_TRACE(what);
      Compare(tasks[0].task->dag, space, configuration, reference);
    }
  }
  EXPECT_EQ(pipelines, 4);
}

TEST_P(ExecuteTest, CandidatesOfWarpgroupsComputeTheDag) {
  if (GetParam() == "cpu") GTEST_SKIP() << "cpu has no warpgroups";
  if (target_.kind == TargetKind::kCuda && facts_.arch != "sm_90") GTEST_SKIP() << facts_.arch << " has no wgmma";
  facts_.num_cores = 1;
  RunSketches(testing::LargerProducts(), "wgmma");
}

TEST_P(ExecuteTest, CandidatesOfWarpgroupsOverAClusterComputeTheDag) {
  if (GetParam() == "cpu") GTEST_SKIP() << "cpu has no warpgroups";
  if (target_.kind == TargetKind::kCuda && facts_.arch != "sm_90") GTEST_SKIP() << facts_.arch << " has no wgmma";
  facts_.num_cores = 8;
  RunSketches(testing::LargerProducts(), "cluster_wgmma");
}

// The sums are of the kernel that stores the rows where it can make them, and their totals of the block that reads
// them.
TEST_P(ExecuteTest, CandidatesWithSumsOfRunsComputeTheDag) {
  if (target_.is_gpu()) facts_.num_cores = 8;
  const bool groups = GetParam() == "opencl" || facts_.arch == "sm_90";
  RunSketches(testing::SumsOfRuns(), groups ? "wgmma" : "");
}

// Every block of a cluster has shared memory at addresses of its own, which are part of what wgmma is told of columns
// that are not swizzled.
TEST_P(ExecuteTest, EveryBlockOfAClusterReadsItsOwnColumns) {
  if (target_.kind != TargetKind::kCuda) GTEST_SKIP() << GetParam() << " has no clusters";
  if (facts_.arch != "sm_90") GTEST_SKIP() << facts_.arch << " has no wgmma";
  const ComputeDag dag = testing::MatMulOfHalves(72, 264, 768);
  const Reference reference = testing::MakeReference(dag, kInputs);
  const auto task = TaskSpace::Create(dag, target_, facts_).value();
  int run = 0;
  for (int i = 0; i < task->size(); ++i) {
    const Space& space = task->space(i);
    if (space.name().find("cluster_wgmma") == std::string::npos) continue;
    for (const int tiles : {1, 2, 3, 5})
      for (const int cluster : {2, 3, 4}) {
        std::vector<int32_t> configuration = space.Default();
        for (const auto& [name, value] : {std::pair("i1.tiles", tiles), {"n.tiles", tiles}, {"cluster", cluster}}) {
          const int h = testing::ParameterOf(space, name);
          if (h < 0) continue;
          std::vector<int32_t> domain;
          space.Domain(h, configuration, &domain);
          if (std::find(domain.begin(), domain.end(), value) == domain.end()) continue;
          configuration[h] = value;
          if (h + 1 < space.size()) space.Clamp(h + 1, absl::MakeSpan(configuration));
        }
        SCOPED_TRACE(testing::Describe("product", space, run++, configuration));
        Compare(dag, space, configuration, reference);
        if (Enough()) return;
      }
  }
  EXPECT_GE(run, 12);
}

TEST_P(ExecuteTest, CandidatesThatReadOperandsEarlyComputeTheDag) {
  if (GetParam() == "cpu") GTEST_SKIP() << "cpu has no tensor cores";
  facts_.num_cores = 1;
  RunSketches(testing::LinearLayers(), "early");
}

TEST_P(ExecuteTest, CandidatesOfStrassensProductsComputeTheDag) {
  facts_.bandwidth = 1e30;  // pays for products of any size
  RunSketches(testing::EvenProducts(), "strassen");
}

TEST_P(ExecuteTest, CandidatesOfProductsOfHalvesComputeTheDag) {
  if (GetParam() == "cpu") GTEST_SKIP() << "cpu has no tensor cores";
  facts_.num_cores = 1;
  RunSketches(testing::BoundedProducts(), "halves");
}

TEST_P(ExecuteTest, CandidatesOfRowReductionsComputeTheDag) { RunSketches(testing::RowChains(), "row"); }

TEST_P(ExecuteTest, CandidatesOfRowProductsComputeTheDag) {
  if (GetParam() == "cpu") GTEST_SKIP() << "cpu has no sets of threads";
  RunSketches(testing::RowProducts(), "stream");
}

TEST_P(ExecuteTest, CandidatesOfAttentionComputeTheDag) {
  RunSketches(testing::Attentions(), "attention");
  RunSketches(testing::ExportedAttentions(), "attention");
}

// 14 million reads of x, were all of them one expression.
TEST_P(ExecuteTest, ChainsThatGrowAtEachStepAreNotInlinedAsAWhole) {
  if (GetParam() == "opencl") GTEST_SKIP() << "PoCL takes a minute for expressions of the size that is left";
  RunSketches({{"iterated", testing::Iterated(15, 37)}}, "");
}

INSTANTIATE_TEST_SUITE_P(Targets, ExecuteTest, ::testing::Values("cpu", "opencl", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace diapason
