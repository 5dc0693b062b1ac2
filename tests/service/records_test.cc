#include "service/records.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "diapason/v1/history.pb.h"

namespace diapason {
namespace {

TuningRecord Record(const std::string& key, const std::string& model, double seconds) {
  TuningRecord record;
  record.workload_key = key;
  record.workload = "dag of " + key;
  record.task_name = "task";
  record.target = "cuda -arch=sm_90";
  record.device_model = model;
  record.schedule = "steps";
  record.outcome = Timing{{seconds, seconds}, 3, false, 0.5, 0.25};
  return record;
}

TEST(Records, EveryFieldArrives) {
  TuningRecord record = Record("w", "H200", 1e-3);
  record.id = 7;
  record.uuid = "0123";
  record.device_uuid = "GPU-1";
  record.rewrite = "gemm";
  record.sketch = "tiled";
  record.configuration = {1, -2, 3};
  record.configuration_hash = ~uint64_t{0};
  record.predicted = 0.5;
  record.seed = 9;
  record.trial = 4;
  record.clocks = {1500, 2600, 0};
  record.driver = "570";
  record.compiler = "nvrtc 12";
  record.created_at = 123;
  record.verified = Verified::kFailed;
  record.max_error = std::numeric_limits<double>::infinity();
  record.verify_text = "off";
  v1::Record message;
  ToProto(record, message);
  absl::StatusOr<TuningRecord> read = FromProto(message);
  ASSERT_TRUE(read.ok()) << read.status();
  v1::Record again;
  ToProto(*read, again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
  EXPECT_EQ(read->outcome, record.outcome);
  EXPECT_EQ(read->configuration, record.configuration);
  EXPECT_EQ(read->configuration_hash, record.configuration_hash);
  EXPECT_EQ(read->verified, Verified::kFailed);
  EXPECT_EQ(read->clocks, record.clocks);
  message.clear_timing();
  EXPECT_EQ(FromProto(message).status(), absl::DataLossError("the service sent record 7 without an outcome"));
}

TEST(Records, ABuildWithoutTheDeviceTakesTheModelWithMostRecords) {
  const std::string path = testing::TempDir() + "records_test.db";
  std::filesystem::remove(path);
  {
    auto history = History::Open(path, HistoryMode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    ASSERT_TRUE(
        (*history)->Append({Record("w", "H200", 1e-3), Record("w", "H200", 2e-3), Record("w", "H100", 5e-4)}).ok());
    const std::string target = "cuda -arch=sm_90";
    EXPECT_EQ(*ModelForBuild(**history, target, "H100", true), "H100");
    EXPECT_EQ(*ModelForBuild(**history, target, "B200", true), "H200");
    EXPECT_EQ(*ModelForBuild(**history, target, "B200", false), "B200");
    EXPECT_EQ(*ModelForBuild(**history, "cpu", "B200", true), "B200");
    auto records = RecordsForBuild(**history, {"w", "v"}, "H200", target);
    ASSERT_TRUE(records.ok());
    ASSERT_EQ(records->size(), 1u);
    EXPECT_EQ(MedianSeconds(*records->at("w").timing()), 1e-3);
    EXPECT_EQ(CheckNetwork(**history, "resnet-18", "h.db"), absl::NotFoundError("h.db knows no network resnet-18"));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace diapason
