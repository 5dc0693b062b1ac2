// What the tests of the history share: records, a folder that goes away, a clock that stands still.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "db/history.h"
#include "gtest/gtest.h"

namespace diapason {

// A folder of its own for each test.
class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() {
    // In memory where that can be had: the tests write hundreds of small files, and a busy disk takes 100 ms to sync
    // each.
    const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "diapason-db-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
  }
  ~HistoryTest() override {
    std::error_code ignored;
    std::filesystem::permissions(folder_, std::filesystem::perms::all, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // Each look at the clock is a second later; uuids count up.
  HistoryOptions Options() {
    HistoryOptions options;
    options.now = [this] { return clock_ += 1000000000; };
    options.new_uuid = [this] {
      std::string digits = std::to_string(++uuids_);
      return std::string(32 - digits.size(), '0') + digits;
    };
    return options;
  }

  std::unique_ptr<History> Open(const std::string& path, HistoryMode mode = HistoryMode::kCreate) {
    absl::StatusOr<std::unique_ptr<History>> history = History::Open(path, mode, Options());
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : nullptr;
  }

  std::string folder_;
  std::atomic<int64_t> clock_{1700000000000000000};
  std::atomic<int64_t> uuids_{0};
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
}

// A record that was timed, with every field set.
inline TuningRecord TimedRecord(const std::string& workload_key = "conv2d-1a2b", double seconds = 1.25e-5) {
  TuningRecord record;
  record.workload_key = workload_key;
  record.workload = "dag of " + workload_key + std::string("\0\x01\xff", 3);
  record.task_name = "conv2d_relu";
  record.target = "cuda -arch=sm_90";
  record.device_model = "NVIDIA H200";
  record.device_uuid = "GPU-0001";
  record.view = "gemm";
  record.sketch = "tile+shared";
  record.schedule = std::string("steps\0\x80", 7);
  record.decisions = {4, -1, 2147483647, -2147483648};
  record.decision_hash = 0xfedcba9876543210u;
  record.outcome = Timing{{seconds * 1.1, seconds, seconds * 0.9}, 100, false, 0.75, 0.0625};
  record.predicted = 0.1 + 0.2;
  record.seed = 0xffffffffffffffffu;
  record.trial = 17;
  record.clocks = {1980, 2619, 3400};
  record.driver = "550.54";
  record.compiler = "nvrtc 12.4";
  return record;
}

inline TuningRecord FailedRecord(ErrorKind kind = ErrorKind::kRunTimeout, const std::string& key = "conv2d-1a2b") {
  TuningRecord record = TimedRecord(key);
  record.outcome = MeasureError{kind, MeasureStage::kRun, "the kernel did not finish in 10 s"};
  record.predicted.reset();
  return record;
}

// Every field but the id, the run's id and the workload's bytes, which may differ between files.
inline void ExpectSameContent(const TuningRecord& a, const TuningRecord& b) {
  EXPECT_EQ(a.uuid, b.uuid);
  EXPECT_EQ(a.workload_key, b.workload_key);
  EXPECT_EQ(a.task_name, b.task_name);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.device_model, b.device_model);
  EXPECT_EQ(a.device_uuid, b.device_uuid);
  EXPECT_EQ(a.view, b.view);
  EXPECT_EQ(a.sketch, b.sketch);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.decisions, b.decisions);
  EXPECT_EQ(a.decision_hash, b.decision_hash);
  EXPECT_TRUE(a.outcome == b.outcome);
  EXPECT_EQ(a.predicted, b.predicted);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.trial, b.trial);
  EXPECT_TRUE(a.clocks == b.clocks);
  EXPECT_EQ(a.driver, b.driver);
  EXPECT_EQ(a.compiler, b.compiler);
  EXPECT_EQ(a.created_at, b.created_at);
  EXPECT_EQ(a.verified, b.verified);
  EXPECT_EQ(a.max_error, b.max_error);
  EXPECT_EQ(a.verify_text, b.verify_text);
}

}  // namespace diapason
