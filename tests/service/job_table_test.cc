// The states of jobs, and what of them the next service finds.
#include "service/job_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>

#include "service/job_store.h"

namespace diapason {
namespace {

class JobTableTest : public testing::Test {
 protected:
  JobTableTest() {
    std::string pattern = testing::TempDir() + "table-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    limits_.retry_seconds = 0;
  }
  ~JobTableTest() override { std::filesystem::remove_all(folder_); }

  void Open(JobTable& table) {
    auto store = JobStore::Open(folder_ + "/jobs");
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(table.Open(*std::move(store)).ok());
  }
  static int64_t Add(JobTable& table, const std::string& key, int priority = 0, const std::string& owner = "") {
    v1::TuneSpec spec;
    spec.set_model("gemm");
    spec.set_priority(priority);
    const auto id = table.Add(key, spec, owner);
    EXPECT_TRUE(id.ok()) << id.status();
    return *id;
  }
  static v1::Job Get(JobTable& table, int64_t id) { return table.Get(id, 0, std::chrono::milliseconds(0)).value(); }
  // Begins the next job, which ends with this.
  static int64_t RunOne(JobTable& table, const absl::StatusOr<std::string>& stopped) {
    int64_t id = 0;
    EXPECT_TRUE(table.RunNext([&](JobTable::Entry& entry, const v1::Job& job) {
      id = job.id();
      EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
      table.End(entry, stopped);
    }));
    table.Join();
    return id;
  }

  std::string folder_;
  JobLimits limits_;
};

TEST_F(JobTableTest, JobsAreBegunByPriorityThenByAge) {
  JobTable table(limits_);
  Open(table);
  const int64_t a = Add(table, "a"), b = Add(table, "b"), urgent = Add(table, "c", 1);
  EXPECT_EQ(RunOne(table, "enough trials"), urgent);
  EXPECT_EQ(RunOne(table, "enough trials"), a);
  EXPECT_EQ(RunOne(table, "enough trials"), b);
  EXPECT_EQ(Get(table, b).state(), v1::JOB_STATE_DONE);
  EXPECT_EQ(Get(table, b).progress().stopped(), "enough trials");
  EXPECT_EQ(table.FindKey("b"), b);
  EXPECT_EQ(table.FindKey("none"), 0);
}

TEST_F(JobTableTest, WhatTheFleetFailsIsTriedAgainAndWhatFailsHasFailed) {
  JobTable table(limits_);
  Open(table);
  const int64_t id = Add(table, "a");
  RunOne(table, absl::UnavailableError("no worker"));
  EXPECT_EQ(Get(table, id).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get(table, id).text(), "no worker");
  RunOne(table, absl::InternalError("broken"));
  EXPECT_EQ(Get(table, id).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(table, id).text(), "broken");
}

TEST_F(JobTableTest, AJobThatIsCancelledWhileItRunsIsToldToStop) {
  JobTable table(limits_);
  Open(table);
  const int64_t id = Add(table, "a");
  EXPECT_TRUE(table.RunNext([&](JobTable::Entry& entry, const v1::Job&) {
    while (!entry.stop) std::this_thread::yield();
    table.End(entry, absl::CancelledError("stopped"));
  }));
  EXPECT_EQ(table.Cancel(id)->state(), v1::JOB_STATE_RUNNING);
  table.Join();
  EXPECT_EQ(Get(table, id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(table.Erase(id), absl::StatusOr<bool>(true));
  EXPECT_EQ(table.Erase(id), absl::StatusOr<bool>(false));
}

TEST_F(JobTableTest, ResumingMayBeRefused) {
  JobTable table(limits_);
  Open(table);
  const int64_t id = Add(table, "a");
  ASSERT_TRUE(table.Cancel(id).ok());
  const auto refuse = [](const v1::TuneSpec&) { return absl::NotFoundError("the model is gone"); };
  EXPECT_EQ(table.Resume(id, 7, "", refuse).status(), absl::NotFoundError("the model is gone"));
  EXPECT_EQ(Get(table, id).state(), v1::JOB_STATE_CANCELLED);
  const auto resumed = table.Resume(id, 7, "ann", [](const v1::TuneSpec&) { return absl::OkStatus(); });
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(resumed->spec().trials(), 7);
  EXPECT_EQ(resumed->series(), 1u);
  EXPECT_EQ(resumed->owner(), "ann");
}

TEST_F(JobTableTest, TheNextServiceKnowsHowOftenPreparationEndedOne) {
  for (int service = 0; service < 3; ++service) {
    JobTable table(limits_);
    Open(table);
    if (service == 0) Add(table, "a");
    JobTable::Entry* begun = nullptr;
    EXPECT_TRUE(table.RunNext([&](JobTable::Entry& entry, const v1::Job&) { begun = &entry; }));
    table.Join();
    EXPECT_TRUE(table.BeginPreparation(*begun).ok());
  }
  JobTable table(limits_);
  Open(table);
  EXPECT_EQ(Get(table, 1).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(table, 1).preparations(), 3u);
}

TEST_F(JobTableTest, TheEstimateIsWhatTheNetworkTookInItsCheck) {
  JobTable table(limits_);
  Open(table);
  for (const double latency_us : {0.0, 150.0}) {  // 0: not measured
    const int64_t id = Add(table, std::to_string(latency_us));
    EXPECT_TRUE(table.RunNext([&](JobTable::Entry& entry, const v1::Job&) {
      v1::JobProgress progress;
      progress.set_measured(1);
      progress.set_estimated_us(100);
      progress.set_estimated_fallback_us(300);
      progress.set_expected_us(90);
      table.SetProgress(entry, progress);
      v1::NetworkCheckOutcome outcome;
      outcome.set_right(true);
      outcome.set_latency_us(latency_us);
      table.SetNetworkCheck(entry, outcome);
      table.End(entry, "enough trials");
    }));
    table.Join();
    const v1::JobProgress progress = Get(table, id).progress();
    const double correction = latency_us > 0 ? latency_us / 100 : 1;
    EXPECT_DOUBLE_EQ(progress.estimated_us(), 100 * correction);
    EXPECT_DOUBLE_EQ(progress.estimated_fallback_us(), 300 * correction);
    EXPECT_DOUBLE_EQ(progress.expected_us(), 90 * correction);
    EXPECT_TRUE(progress.network_check().right());
  }
}

TEST_F(JobTableTest, NobodyWaitsForOneThatStops) {
  JobTable table(limits_);
  Open(table);
  const int64_t id = Add(table, "a");
  std::thread waiting([&] { EXPECT_TRUE(table.Get(id, ~uint64_t{0}, std::chrono::minutes(10)).ok()); });
  table.Stop();
  waiting.join();
  EXPECT_FALSE(table.RunNext([](JobTable::Entry&, const v1::Job&) {}));
}

}  // namespace
}  // namespace diapason
