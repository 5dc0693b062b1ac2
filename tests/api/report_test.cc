// Reports of a history, by the public header.
#include "diapason/report.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "diapason/explain.h"
#include "diapason/tuner.h"
#include "tests/paths.h"

namespace diapason::api {
namespace {

class Reports : public testing::Test {
 protected:
  void SetUp() override {
    SetProgram(TEST_PATH(DIAPASON_PROGRAM));
    std::string name = testing::TempDir() + "/diapason_report_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    TuneOptions tuning;
    tuning.model.source = "gemm";
    tuning.model.options = {{"m", "32"}, {"n", "48"}, {"k", "64"}};
    tuning.target = "cpu -num-cores=1";
    tuning.history = folder_ / "h.db";
    tuning.trials = 2;
    tuning.min_repeat_ms = 1;
    tuning.check = false;
    const absl::StatusOr<TuneResult> tuned = Tune(tuning);
    ASSERT_TRUE(tuned.ok()) << tuned.status();
    best_ = tuned->progress.tasks.at(0).record.value_or(0);
    options_.history = folder_ / "h.db";
    options_.out = folder_ / "report.html";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::stringstream text;
    text << std::ifstream(options_.out).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
  int64_t best_ = 0;
  ReportOptions options_;
};

TEST_F(Reports, HoldTheHistoryAndTheDetailsOfItsBestRecords) {
  const absl::StatusOr<Report> report = WriteReport(options_);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string text = Text();
  EXPECT_EQ(static_cast<size_t>(report->bytes), text.size());
  const absl::StatusOr<Explanation> explained = ExplainRecord(options_.history, best_);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_NE(text.find(explained->sketch), std::string::npos);
  EXPECT_NE(text.find("\"loops\":"), std::string::npos);
  options_.details = 0;
  ASSERT_TRUE(WriteReport(options_).ok()) << "a report may be replaced";
  EXPECT_EQ(Text().find("\"loops\":"), std::string::npos);
}

TEST_F(Reports, SpareOtherFiles) {
  std::ofstream(options_.out) << "mine\n";
  EXPECT_EQ(WriteReport(options_).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Text(), "mine\n");
  options_.details = -1;
  EXPECT_EQ(WriteReport(options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.details = 40;
  options_.history = folder_ / "none.db";
  EXPECT_EQ(WriteReport(options_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Reports, AreStopped) {
  const std::atomic<bool> stop{true};
  options_.hooks.stop = &stop;
  EXPECT_EQ(WriteReport(options_).status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(options_.out));
}

}  // namespace
}  // namespace diapason::api
