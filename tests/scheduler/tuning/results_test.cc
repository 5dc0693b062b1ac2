// Outcomes of trials: stored, then learnt from.
#include "scheduler/tuning/results.h"

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using ResultsTest = RunTest;

TEST_F(ResultsTest, WhatIsStoredIsConcluded) {
  Pending pending;
  pending.proposal = Propose(0, 1);
  results_.Add(std::move(pending), FakeMeasurer::Time(1e-3));
  results_.Conclude();
  EXPECT_TRUE(recorded_.empty());  // it is not in the history yet
  ASSERT_TRUE(results_.Store().ok());
  EXPECT_TRUE(results_.to_conclude());
  results_.Conclude();
  ASSERT_EQ(recorded_.size(), 1u);
  EXPECT_TRUE(recorded_[0].best);
  EXPECT_EQ(tasks_.at(0).results().BestSeconds(), 1e-3);
  EXPECT_EQ(results_.measured(), 1);
  EXPECT_EQ(results_.known_record(), tasks_.at(0).results()[0].record);
  EXPECT_EQ(history_->ForWorkload(network_.tasks()[0].workload_key, "fake device")->size(), 1u);
}

TEST_F(ResultsTest, TrialsWithoutAGainAreCounted) {
  Measure(0, 1, 1e-3);
  Measure(0, 2, 2e-3);
  Measure(0, 3, 3e-3);
  EXPECT_EQ(results_.without_gain(), 2);
  Measure(0, 4, 5e-4);
  EXPECT_EQ(results_.without_gain(), 0);
}

TEST_F(ResultsTest, ATimeThatIsNoneIsAnError) {
  Measure(0, 1, 0);
  EXPECT_EQ(tasks_.at(0).results().failed(), 1);
  EXPECT_EQ(results_.errors().at("unknown"), 1);
}

TEST_F(ResultsTest, AReplayedOneIsNotAnnounced) {
  TuningRecord record = Propose(0, 1).record;
  record.id = 5;
  record.outcome = FakeMeasurer::Time(1e-3).outcome;
  results_.AddReplayed(0, std::move(record), Propose(0, 1));
  results_.Conclude();
  EXPECT_TRUE(recorded_.empty());
  EXPECT_EQ(tasks_.at(0).results().size(), 1u);
  EXPECT_EQ(results_.measured(), 0);
}

TEST_F(ResultsTest, AWrongOneLosesItsPlace) {
  Measure(0, 1, 2e-3);
  const int wrong = Measure(0, 2, 1e-3);
  results_.Judge(0, wrong, {false, 1, "wrong"});
  EXPECT_EQ(tasks_.at(0).results().BestSeconds(), 2e-3);
  EXPECT_EQ(results_.errors().at("wrong_result"), 1);
}

}  // namespace
}  // namespace diapason::tuning
