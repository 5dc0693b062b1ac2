// Going on where an earlier run was cut off.
#include "scheduler/tuning/resumption.h"

#include <memory>
#include <utility>
#include <vector>

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using ResumptionTest = RunTest;

TEST_F(ResumptionTest, WhatTheHistoryHoldsCounts) {
  TuningRecord record = Propose(0, 1).record;
  record.run_id = history_->StartRun({}).value();
  record.target = options_.target.ToString();
  record.device_model = "fake device";
  record.outcome = FakeMeasurer::Time(1e-3).outcome;
  ASSERT_TRUE(history_->Append({record}).ok());
  int searches = 0;
  ASSERT_TRUE(resumption_.Run([&](int, int, const std::shared_ptr<const Ranker>&) { ++searches; }).ok());
  EXPECT_EQ(searches, 0);
  EXPECT_EQ(tasks_.at(0).results().BestSeconds(), 1e-3);
  EXPECT_EQ(results_.measured(), 0);
  EXPECT_TRUE(resumption_.TakeUnderWay().empty());
  EXPECT_FALSE(resumption_.keeps_model());
}

TEST_F(ResumptionTest, TheSearchThatWasUnderWayBeginsAgain) {
  const std::unique_ptr<RoundStore> rounds = RoundStore::Open(folder_ + "/h.db.rounds").value();
  options_.rounds = rounds.get();
  options_.rounds_run = "run";
  ASSERT_TRUE(notes_.NoteDefault(0, {Propose(0, 4)}).ok());
  ASSERT_TRUE(notes_.NoteBegun(1, 5, /*known=*/0, /*trained=*/0).ok());
  std::vector<std::pair<int, int>> searches;
  ASSERT_TRUE(
      resumption_
          .Run([&](int task, int trials, const std::shared_ptr<const Ranker>&) { searches.emplace_back(task, trials); })
          .ok());
  EXPECT_EQ(searches, (std::vector<std::pair<int, int>>{{1, 5}}));
  EXPECT_EQ(resumption_.TakeUnderWay().size(), 1u);
  EXPECT_TRUE(resumption_.TakeUnderWay().empty());
}

TEST_F(ResumptionTest, AModelThatCannotBeReadIsNotReplaced) {
  options_.model_path = folder_;
  ASSERT_TRUE(resumption_.Run([](int, int, const std::shared_ptr<const Ranker>&) {}).ok());
  EXPECT_FALSE(resumption_.keeps_model());
}

}  // namespace
}  // namespace diapason::tuning
