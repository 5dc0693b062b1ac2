#include "tests/scheduler/sketch/guard.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "scheduler/random.h"

namespace diapason::testing {
namespace {

using Options = std::map<std::string, std::string>;

// Tasks of the built-in networks, small or not: so many and more.
constexpr size_t kLeastBuiltinTasks = 60;

std::string FromEnvironmentOr(const char* name, const char* fallback) {
  const char* text = std::getenv(name);
  return text ? text : fallback;
}

// Networks whose tasks are guarded: classifiers of images with every kind of convolution and pool, and single
// operators. Those of the others are much the same, and many.
bool IsGuarded(const std::string& network) {
  static const std::set<std::string>& guarded =
      *new std::set<std::string>{"resnet-18", "resnet-34",       "resnet-50", "resnet-101", "resnet-152",
                                 "mobilenet", "squeezenet_v1.1", "conv2d",    "depthwise",  "gemm"};
  return guarded.count(network) != 0;
}

// Options that make a network small. Image networks: 56 and 60 pixels pass through all their strides to 7x7 maps and
// odd ones; a quarter of the channels keeps multiples of 16, 13 per cent gives 8, 17, 33, 67 and 133.
std::vector<Options> SmallSizes(const BuiltinInfo& network) {
  if (network.name == "conv2d")
    return {{{"h", "14"}, {"w", "13"}, {"ci", "16"}, {"co", "48"}},
            {{"h", "9"}, {"w", "15"}, {"ci", "7"}, {"co", "33"}, {"stride", "2"}, {"bias", "1"}, {"relu", "1"}}};
  if (network.name == "depthwise")
    return {{{"channels", "32"}, {"size", "14"}}, {{"channels", "13"}, {"size", "15"}, {"stride", "2"}, {"relu", "1"}}};
  if (network.name == "gemm")
    return {{{"m", "48"}, {"n", "64"}, {"k", "128"}}, {{"m", "33"}, {"n", "41"}, {"k", "97"}, {"bias", "1"}}};
  return {{{"image", "56"}, {"width", "25"}, {"classes", "96"}}, {{"image", "60"}, {"width", "13"}, {"classes", "45"}}};
}

void AddTasksOf(const std::string& network, const Options& extra, std::set<std::string>* known,
                std::vector<NamedDag>* tasks) {
  ModelOptions options;
  options.extra = extra;
  const auto optimized = LoadOptimized(network, options);
  ASSERT_TRUE(optimized.ok()) << network << ": " << optimized.status();
  const auto partition = PartitionNetwork(*optimized);
  ASSERT_TRUE(partition.ok()) << network << ": " << partition.status();
  for (const Task& task : partition->tasks)
    if (known->insert(task.workload_key).second) tasks->push_back({absl::StrCat(network, "/", task.name), task.dag});
}

}  // namespace

GuardSettings GuardSettings::FromEnvironment() {
  GuardSettings settings;
  settings.candidates = std::atoi(FromEnvironmentOr("DIAPASON_CANDIDATES", "0").c_str());
  settings.seed = std::strtoull(FromEnvironmentOr("DIAPASON_SEED", "1").c_str(), nullptr, 10);
  const std::string shard = FromEnvironmentOr("DIAPASON_SHARD", "0/1");
  if (std::sscanf(shard.c_str(), "%d/%d", &settings.shard, &settings.shards) != 2 || settings.shard < 0 ||
      settings.shard >= settings.shards)
    ADD_FAILURE() << "DIAPASON_SHARD is '" << shard << "': give it as 2/16, counted from 0";
  settings.full_size = FromEnvironmentOr("DIAPASON_FULL_SIZE", "0") == "1";
  settings.seconds = std::atof(FromEnvironmentOr("DIAPASON_SECONDS", "0").c_str());
  settings.task = FromEnvironmentOr("DIAPASON_TASK", "");
  settings.sketch = FromEnvironmentOr("DIAPASON_SKETCH", "");
  settings.trace = FromEnvironmentOr("DIAPASON_TRACE", "");
  return settings;
}

std::vector<NamedDag> BuiltinTasks(bool full_size) {
  std::vector<NamedDag> tasks;
  std::set<std::string> known;
  for (const BuiltinInfo& network : BuiltinNetworks()) {
    if (!IsGuarded(network.name)) continue;
    const std::vector<Options> sizes = full_size ? std::vector<Options>{{}} : SmallSizes(network);
    for (const Options& extra : sizes) AddTasksOf(network.name, extra, &known, &tasks);
  }
  EXPECT_GE(tasks.size(), kLeastBuiltinTasks);
  return tasks;
}

std::vector<int32_t> DrawCandidate(const Space& space, uint64_t seed, int number) {
  if (number == 0) return space.Default();
  Random random(seed, static_cast<uint64_t>(number));
  std::vector<int32_t> configuration(space.size(), 1), values;
  for (int parameter = 0; parameter < space.size(); ++parameter) {
    space.Domain(parameter, configuration, &values);
    configuration[parameter] = values[random.Below(static_cast<uint32_t>(values.size()))];
  }
  return configuration;
}

std::string Describe(const std::string& task, const Space& space, int number, absl::Span<const int32_t> configuration) {
  std::string text = absl::StrCat(task, " ", space.name(), " candidate ", number, ":");
  for (int parameter = 0; parameter < space.size(); ++parameter)
    absl::StrAppend(&text, " ", space.parameter_name(parameter), "=", configuration[parameter]);
  return text;
}

std::vector<GuardTask> TasksToGuard(const std::vector<NamedDag>& tasks, const GuardSettings& settings,
                                    const Target& target, const DeviceFacts& facts) {
  std::vector<GuardTask> guarded;
  int number = 0;
  for (const NamedDag& task : tasks) {
    if (task.name.find(settings.task) == std::string::npos || number++ % settings.shards != settings.shard) continue;
    auto space = TaskSpace::Create(task.dag, target, facts);
    if (!space.ok()) {
      ADD_FAILURE() << task.name << ": " << space.status();
      continue;
    }
    GuardTask one{&task, *std::move(space), {}};
    for (int i = 0; i < one.space->size(); ++i)
      if (one.space->space(i).name().find(settings.sketch) != std::string::npos) one.sketches.push_back(i);
    guarded.push_back(std::move(one));
  }
  return guarded;
}

bool GuardClock::Over() const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  return settings_.seconds > 0 && passed.count() > settings_.seconds;
}

void GuardClock::Begin(const std::string& what) const {
  if (!settings_.trace.empty()) std::ofstream(settings_.trace, std::ios::trunc) << what << "\n";
}

void Conclude(const GuardSettings& settings, const GuardedRun& run) {
  int64_t sketches = 0;
  for (const GuardTask& task : run.tasks) sketches += static_cast<int64_t>(task.sketches.size());
  std::printf("guard: %s %s: %zu tasks, %lld sketches, %lld candidates\n", run.test.c_str(), run.target.c_str(),
              run.tasks.size(), static_cast<long long>(sketches), static_cast<long long>(run.candidates));
  std::fflush(stdout);
  if (settings.shards == 1) {
    EXPECT_GT(sketches, 0) << run.test << " has no sketches on " << run.target
                           << ": is a name in DIAPASON_TASK or DIAPASON_SKETCH right?";
  }
  if (settings.seconds == 0 && !::testing::Test::HasFailure()) {
    EXPECT_EQ(run.candidates, sketches * run.per_sketch) << run.test << " left candidates out on " << run.target;
  }
}

}  // namespace diapason::testing
