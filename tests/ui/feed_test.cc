// A history as JSON, and what has changed since.
#include "ui/feed.h"

#include <vector>

#include "db/prune.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

class FeedTest : public HistoryTest {
 protected:
  void SetUp() override { history_ = Open(Path("h.db")); }
  std::unique_ptr<HistoryFeed> Feed(int64_t most = 1000) {
    auto feed = HistoryFeed::Open(Path("h.db"), {most});
    EXPECT_TRUE(feed.ok()) << feed.status();
    return std::move(*feed);
  }
  std::vector<int64_t> Append(const std::vector<TuningRecord>& records) {
    const auto ids = history_->Append(records);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  }
  std::unique_ptr<History> history_;
};

TEST_F(FeedTest, AnEmptyHistoryIsAWholeDocument) {
  const Json json = Feed()->Snapshot();
  EXPECT_EQ(json["schema"], "diapason.page.history/2");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["history"], "h.db");
  EXPECT_EQ(json["total_trials"], 0);
  EXPECT_EQ(json["verified_names"], Json({"unknown", "ok", "failed", "wrong_in_network"}));
  for (const char* table : {"workloads", "places", "sketches", "errors", "networks", "latencies", "runs"})
    EXPECT_EQ(json[table], Json::array()) << table;
  for (const auto& [column, values] : json["trials"].items()) EXPECT_EQ(values, Json::array()) << column;
}

TEST_F(FeedTest, MeasurementsAreColumnsOverTables) {
  TuningRun run;
  run.command_line = "diapason tune net";
  run.started_at = 1700000000000000000;
  TuningRecord timed = TimedRecord("a", 2e-3), failed = FailedRecord(ErrorKind::kRunTimeout, "b");
  timed.run_id = history_->StartRun(run).value();
  timed.created_at = 1700000001000000000;
  failed.created_at = 1700000001500000000;
  const std::vector<int64_t> ids = Append({timed, failed});
  ASSERT_TRUE(history_->LinkNetwork({{"net", "a", timed.workload, "conv", 3}}).ok());
  ASSERT_TRUE(history_->SetLatency({"net", timed.target, timed.device_model, 0.5, 0.25, 1700000002000000000}).ok());
  ASSERT_TRUE(history_->SetVerified(ids[0], true, 0, "").ok());

  const Json json = Feed()->Snapshot();
  EXPECT_EQ(json["total_trials"], 2);
  EXPECT_EQ(json["origin"], "2023-11-14T22:13:21.000Z");
  EXPECT_EQ(json["workloads"][0],
            (Json{{"workload", "a"}, {"task", "conv"}, {"flops", nullptr}, {"bytes", nullptr}, {"dtype", nullptr}}));
  EXPECT_EQ(json["workloads"][1]["workload"], "b");
  EXPECT_EQ(json["places"][0]["target"], "cuda -arch=sm_90");
  EXPECT_EQ(json["places"][0]["device"], "NVIDIA H200");
  EXPECT_EQ(json["places"][0]["roofs"]["compute"].size(), 4u);
  EXPECT_EQ(json["sketches"], Json({"tile+shared"}));
  EXPECT_EQ(json["errors"][0],
            (Json{{"kind", "run_timeout"}, {"stage", "run"}, {"text", "the kernel did not finish in 10 s"}}));
  EXPECT_EQ(json["networks"][0]["tasks"][0], (Json{{"workload", 0}, {"task", "conv"}, {"count", 3.0}}));
  EXPECT_EQ(json["latencies"][0]["latency_us"], 500000.0);
  EXPECT_EQ(json["latencies"][0]["measured_at"], "2023-11-14T22:13:22.000Z");
  EXPECT_EQ(json["runs"][0]["started_at"], "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(json["runs"][0]["ended_at"], nullptr);
  const Json& trials = json["trials"];
  EXPECT_EQ(trials["record"], Json(ids));
  EXPECT_EQ(trials["workload"], Json({0, 1}));
  EXPECT_EQ(trials["after_us"], Json({0, 500000}));
  EXPECT_EQ(trials["median_us"], Json({2000.0, nullptr}));
  EXPECT_EQ(trials["error"], Json({-1, 0}));
  EXPECT_EQ(trials["verified"], Json({1, 0}));
  EXPECT_EQ(trials["stopped_early"], Json({0, 0}));
}

TEST_F(FeedTest, AChangeHasNewRowsAndCorrections) {
  const std::vector<int64_t> first = Append({TimedRecord("a", 1), TimedRecord("a", 2)});
  const auto feed = Feed();
  EXPECT_EQ(feed->Poll().value(), std::nullopt);

  const std::vector<int64_t> second = Append({TimedRecord("b", 3)});
  ASSERT_TRUE(history_->MarkWrongInNetwork(first[1], 1, "evidence").ok());
  const auto change = feed->Poll().value();
  ASSERT_TRUE(change.has_value());
  EXPECT_FALSE(change->whole);
  const Json& delta = change->delta;
  EXPECT_EQ(delta["schema"], "diapason.page.change/2");
  EXPECT_EQ(delta["version"], 2);
  EXPECT_EQ(delta["total_trials"], 3);
  EXPECT_EQ(delta["workloads"].size(), 1u);
  EXPECT_EQ(delta["sketches"], Json::array());
  EXPECT_EQ(delta["trials"]["record"], Json(second));
  EXPECT_EQ(delta["trials"]["workload"], Json({1}));
  EXPECT_EQ(delta["changed"]["record"], Json({first[1]}));
  EXPECT_EQ(delta["changed"]["verified"], Json({3}));
  EXPECT_EQ(feed->Poll().value(), std::nullopt);
  // The whole document has both.
  EXPECT_EQ(feed->Snapshot()["version"], 2);
  EXPECT_EQ(feed->Snapshot()["trials"]["verified"], Json({0, 3, 0}));
}

TEST_F(FeedTest, ARunThatEndsIsAChange) {
  const int64_t run = history_->StartRun({}).value();
  const auto feed = Feed();
  ASSERT_TRUE(history_->EndRun(run).ok());
  const auto change = feed->Poll().value();
  ASSERT_TRUE(change.has_value());
  EXPECT_NE(change->delta["runs"][0]["ended_at"], nullptr);
}

TEST_F(FeedTest, RowsThatAreGoneAskForTheWholeHistory) {
  Append({TimedRecord("a", 1), TimedRecord("a", 2), TimedRecord("a", 3)});
  const auto feed = Feed();
  ASSERT_TRUE(PruneHistory(*history_, 1).ok());
  const auto change = feed->Poll().value();
  ASSERT_TRUE(change.has_value());
  EXPECT_TRUE(change->whole);
  EXPECT_EQ(feed->Snapshot()["trials"]["median_us"], Json({1e6}));
}

TEST_F(FeedTest, OfMoreThanTheLimitTheNewestAndTheBestAreShown) {
  const std::vector<int64_t> ids = Append({TimedRecord("a", 1), TimedRecord("a", 2), TimedRecord("a", 3)});
  const Json json = Feed(1)->Snapshot();
  EXPECT_EQ(json["total_trials"], 3);
  EXPECT_EQ(json["trials"]["record"], Json({ids[0], ids[2]}));
}

TEST_F(FeedTest, AMissingHistoryIsRefused) {
  EXPECT_EQ(HistoryFeed::Open(Path("none.db")).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace diapason
