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
#include "tests/db/records.h"

namespace diapason {

// A folder of its own for each test.
class HistoryFolder {
 protected:
  HistoryFolder() {
    // In memory where that can be had: the tests write hundreds of small files, and a busy disk takes 100 ms to sync
    // each.
    const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "diapason-db-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
  }
  virtual ~HistoryFolder() {
    std::error_code ignored;
    std::filesystem::permissions(folder_, std::filesystem::perms::all, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }

  virtual std::string Path(const std::string& name) const { return folder_ + "/" + name; }

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

class HistoryTest : public HistoryFolder, public ::testing::Test {};

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

// Every field but the id, the run's id and the workload's bytes, which may differ between files.
inline void ExpectSameContent(const TuningRecord& a, const TuningRecord& b) {
  EXPECT_EQ(a.uuid, b.uuid);
  EXPECT_EQ(a.workload_key, b.workload_key);
  EXPECT_EQ(a.task_name, b.task_name);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.device_model, b.device_model);
  EXPECT_EQ(a.device_uuid, b.device_uuid);
  EXPECT_EQ(a.rewrite, b.rewrite);
  EXPECT_EQ(a.sketch, b.sketch);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.configuration, b.configuration);
  EXPECT_EQ(a.configuration_hash, b.configuration_hash);
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
