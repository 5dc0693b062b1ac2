// Which tasks a tune has, once it is known what devices there are.
#include "api/tune_job.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/tensor/device_facts.h"
#include "service/measurer.h"
#include "service/target.h"
#include "tests/paths.h"

namespace diapason::api {
namespace {

ResolvedTarget GpuOf(const std::string& text) {
  const Target target = Target::Parse(text).value();
  return ResolveWith(target, DefaultFacts(target));
}

// Names of the tasks of a network with normalizations, tuned for "cuda" on such devices.
std::vector<std::string> TasksOn(const std::string& devices) {
  std::string folder = testing::TempDir() + "tune-job-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::atomic<bool> stop{false};
  TuneJob job;
  job.spec.model = "bert-base";
  job.spec.options.dtype = DType::kFloat16;
  job.spec.options.extra = {{"layers", "1"}, {"hidden", "64"}, {"heads", "2"},
                            {"seq", "33"},   {"vocab", "31"},  {"intermediate", "128"}};
  job.spec.target = "cuda";
  job.import.program = TEST_PATH(DIAPASON_PROGRAM);
  job.history = folder + "/h.db";
  job.name = "test";
  job.stop = &stop;
  job.here = false;
  job.warn = [](const std::string& text) { ADD_FAILURE() << text; };
  job.measure = [&](const TuneWork&) -> absl::StatusOr<Fleet> {
    MeasurerOptions options;
    options.target = Target::Parse("cpu").value();
    options.builders = 1;
    options.program = TEST_PATH(DIAPASON_PROGRAM);
    Fleet fleet;
    fleet.measurer = StartMeasurer(options).value();
    fleet.target = GpuOf(devices);
    return fleet;
  };
  std::vector<std::string> names;
  job.listen = [&](const TuneWork& work) {
    for (const TuningTask& task : work.tasks) names.push_back(task.name);
    stop = true;  // nothing is measured
    return std::make_unique<ProgressListener>();
  };
  const absl::StatusOr<Tuned> tuned = RunTuneJob(job);
  EXPECT_TRUE(tuned.ok()) << tuned.status();
  std::filesystem::remove_all(folder);
  return names;
}

bool DefersNorms(const std::vector<std::string>& tasks) {
  for (const std::string& task : tasks)
    if (task.find("_sums") != std::string::npos) return true;
  return false;
}

TEST(RunTuneJob, TasksAreThoseThatTheDevicesPrefer) {
  const std::vector<std::string> hopper = TasksOn("cuda -arch=sm_90"), ampere = TasksOn("cuda -arch=sm_80");
  EXPECT_FALSE(ampere.empty());
  EXPECT_TRUE(DefersNorms(hopper));
  EXPECT_FALSE(DefersNorms(ampere));
}

}  // namespace
}  // namespace diapason::api
