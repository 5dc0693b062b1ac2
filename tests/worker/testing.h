// What several tests of this module need.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/measure.pb.h"
#include "tests/worker/fakes.h"
#include "worker/pipeline/pipeline.h"

namespace diapason {

// A folder of this test's own, empty, for scratch folders; removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = testing::TempDir() + "worker-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

inline PipelineOptions FakeOptions(const TemporaryFolder& folder) {
  PipelineOptions options;
  options.builder_args = {"worker_tests", "fake-builder"};
  options.runner_args = {"worker_tests", "fake-runner"};
  options.keep_environment = {"DIAPASON_FAKE_OUTSIDE", "DIAPASON_FAKE_PORT", "DIAPASON_FAKE_PID", "DIAPASON_FAKE_SICK",
                              "DIAPASON_FAKE_RESET"};
  options.devices = {"cpu"};
  options.builders = 2;
  options.scratch_base = folder.path();
  options.build_timeout_seconds = 20;
  options.run_timeout_seconds = 20;
  return options;
}

inline std::string FakeSchedule(const std::string& words) {
  Schedule schedule;
  schedule.sketch = words;
  return SerializeSchedule(schedule);
}

inline v1::MeasureRequest FakeRequest(uint64_t id, const std::string& words, const ComputeDag& dag = DoublingDag()) {
  v1::MeasureRequest request;
  request.set_id(id);
  request.set_workload(SerializeDag(dag));
  request.set_schedule(FakeSchedule(words));
  request.set_target("cpu");
  request.mutable_timing()->set_repeat(3);
  request.mutable_timing()->set_min_repeat_ms(0.1);
  return request;
}

// Collects results that come from other threads.
class ResultBox {
 public:
  Pipeline::Done Taker() {
    return [this](const v1::MeasureResult& result) {
      std::lock_guard lock(mutex_);
      results_[result.id()].push_back(result);
      order_.push_back(result.id());
      changed_.notify_all();
    };
  }
  // The result of request `id`; fails the test after `seconds`.
  v1::MeasureResult Wait(uint64_t id, double seconds = 30) {
    std::unique_lock lock(mutex_);
    bool there = changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !results_[id].empty(); });
    EXPECT_TRUE(there) << "no result of request " << id << " within " << seconds << " s";
    return there ? results_[id].front() : v1::MeasureResult();
  }
  size_t count(uint64_t id) {
    std::lock_guard lock(mutex_);
    return results_[id].size();
  }
  std::vector<uint64_t> order() {
    std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::vector<v1::MeasureResult>> results_;
  std::vector<uint64_t> order_;
};

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Processes whose parent is this one, "PID STATE NAME".
inline std::vector<std::string> Children() {
  std::vector<std::string> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    size_t open = line.find('('), close = line.rfind(')');
    char state = 0;
    int parent = 0;
    if (std::sscanf(line.c_str() + close + 1, " %c %d", &state, &parent) == 2 && parent == getpid()) {
      children.push_back(line.substr(0, open) + state + " " + line.substr(open + 1, close - open - 1));
    }
  }
  return children;
}

}  // namespace diapason
