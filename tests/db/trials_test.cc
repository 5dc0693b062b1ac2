// What displays of a whole history read.
#include "db/trials.h"

#include <vector>

#include "tests/db/backends.h"

namespace diapason {
namespace {

using TrialsTest = BackendTest;
DIAPASON_ON_EVERY_BACKEND(TrialsTest);

std::vector<int64_t> Ids(const std::vector<TrialRow>& trials) {
  std::vector<int64_t> ids;
  for (const TrialRow& trial : trials) ids.push_back(trial.id);
  return ids;
}

TEST_P(TrialsTest, RowsHoldWhatWasStored) {
  const auto history = Open(Path("h.db"));
  TuningRun run;
  run.command_line = "diapason tune";
  const int64_t run_id = history->StartRun(run).value();
  TuningRecord timed = TimedRecord();
  timed.run_id = run_id;
  TuningRecord failed = FailedRecord();
  std::get<MeasureError>(failed.outcome).text = std::string(1000, 'x');
  const std::vector<int64_t> ids = history->Append({timed, failed}).value();
  ASSERT_TRUE(history->SetVerified(ids[0], true, 1e-6, "").ok());

  const std::vector<TrialRow> trials = TrialLog(*history).Trials(0, 100).value();
  ASSERT_EQ(Ids(trials), ids);
  EXPECT_EQ(trials[0].run_id, run_id);
  EXPECT_EQ(trials[0].workload_key, timed.workload_key);
  EXPECT_EQ(trials[0].task_name, timed.task_name);
  EXPECT_EQ(trials[0].target, timed.target);
  EXPECT_EQ(trials[0].device_model, timed.device_model);
  EXPECT_EQ(trials[0].sketch, timed.sketch);
  EXPECT_EQ(trials[0].trial, 17);
  EXPECT_EQ(trials[0].median, MedianSeconds(*timed.timing()));
  EXPECT_EQ(trials[0].predicted, timed.predicted);
  EXPECT_EQ(trials[0].error_kind, "");
  EXPECT_EQ(trials[0].verified, Verified::kOk);
  EXPECT_GT(trials[0].created_at, 0);
  EXPECT_EQ(trials[1].median, std::nullopt);
  EXPECT_EQ(trials[1].predicted, std::nullopt);
  EXPECT_EQ(trials[1].run_id, 0);
  EXPECT_EQ(trials[1].error_kind, "run_timeout");
  EXPECT_EQ(trials[1].error_stage, "run");
  EXPECT_EQ(trials[1].error_text, std::string(400, 'x'));
}

TEST_P(TrialsTest, TheNewestComeWithTheBestOfTheOlderOnes) {
  const auto history = Open(Path("h.db"));
  std::vector<TuningRecord> records = {TimedRecord("a", 3), TimedRecord("a", 1), TimedRecord("b", 2),
                                       TimedRecord("a", 5), TimedRecord("a", 4)};
  const std::vector<int64_t> ids = history->Append(records).value();
  EXPECT_EQ(Ids(TrialLog(*history).Trials(0, 5).value()), ids);
  EXPECT_EQ(Ids(TrialLog(*history).Trials(0, 2).value()), (std::vector<int64_t>{ids[1], ids[2], ids[3], ids[4]}));
  EXPECT_EQ(Ids(TrialLog(*history).Trials(ids[2], 100).value()), (std::vector<int64_t>{ids[3], ids[4]}));
  EXPECT_EQ(Ids(TrialLog(*history).Trials(ids[4], 100).value()), std::vector<int64_t>{});
  // A refuted record is no best one.
  ASSERT_TRUE(history->SetVerified(ids[1], false, 1, "wrong").ok());
  EXPECT_EQ(Ids(TrialLog(*history).Trials(0, 2).value()), (std::vector<int64_t>{ids[0], ids[2], ids[3], ids[4]}));
  EXPECT_EQ(TrialLog(*history).Count().value(), 5);
}

TEST_P(TrialsTest, StatesFollowVerificationAndFurtherSamples) {
  const auto history = Open(Path("h.db"));
  const std::vector<int64_t> ids = history->Append({TimedRecord("a", 1), TimedRecord("a", 2)}).value();
  ASSERT_TRUE(history->MarkWrongInNetwork(ids[0], 1, "evidence").ok());
  ASSERT_TRUE(history->AddSamples(ids[1], {8, 8, 8, 8}).ok());
  const std::vector<TrialState> states = TrialLog(*history).States(0).value();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0], (TrialState{ids[0], 1.0, false, Verified::kWrongInNetwork}));
  EXPECT_EQ(states[1], (TrialState{ids[1], 8.0, false, Verified::kUnknown}));
  EXPECT_EQ(TrialLog(*history).States(ids[1]).value().size(), 1u);
}

TEST_P(TrialsTest, TheChangeCounterTellsOfOtherWritersOnly) {
  const auto writer = Open(Path("h.db"));
  const auto reader = Open(Path("h.db"), HistoryMode::kReadOnly);
  const int64_t before = TrialLog(*reader).ChangeCounter().value();
  EXPECT_EQ(TrialLog(*reader).ChangeCounter().value(), before);
  ASSERT_TRUE(writer->Append({TimedRecord()}).ok());
  EXPECT_NE(TrialLog(*reader).ChangeCounter().value(), before);
  EXPECT_EQ(TrialLog(*reader).Trials(0, 10).value().size(), 1u);
}

TEST_P(TrialsTest, LatenciesAreListed) {
  const auto history = Open(Path("h.db"));
  ASSERT_TRUE(history->SetLatency({"b", "cpu", "Xeon", 2, 1, 5}).ok());
  ASSERT_TRUE(history->SetLatency({"a", "cpu", "Xeon", 3, 4, 6}).ok());
  const std::vector<NetworkLatency> latencies = TrialLog(*history).Latencies().value();
  ASSERT_EQ(latencies.size(), 2u);
  EXPECT_EQ(latencies[0], (NetworkLatency{"a", "cpu", "Xeon", 3, 4, 6}));
  EXPECT_EQ(latencies[1], (NetworkLatency{"b", "cpu", "Xeon", 2, 1, 5}));
}

}  // namespace
}  // namespace diapason
