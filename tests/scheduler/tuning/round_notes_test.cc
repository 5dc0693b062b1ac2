// What a run has proposed, for one that goes on with it.
#include "scheduler/tuning/round_notes.h"

#include <limits>
#include <memory>

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

class RoundNotesTest : public RunTest {
 protected:
  RoundNotesTest() {
    options_.rounds = rounds_.get();
    options_.rounds_run = "run";
  }
  const std::unique_ptr<RoundStore> rounds_ = RoundStore::Open(folder_ + "/h.db.rounds").value();
};

TEST_F(RoundNotesTest, WhatWasProposedAndNotMeasuredIsUnderWay) {
  const Proposal first = Propose(1, 1), second = Propose(1, 2);
  ASSERT_TRUE(notes_.NoteBegun(1, 2, /*known=*/0, /*trained=*/0).ok());
  ASSERT_TRUE(notes_.NoteRound({1, 2, 1, {first, second}, 0, 0}).ok());
  ASSERT_TRUE(notes_.NoteBegun(0, 3, /*known=*/7, /*trained=*/5).ok());
  const RoundNotes::UnderWay under_way = notes_.Load({{1, first.record.configuration_hash}}).value();
  ASSERT_EQ(under_way.proposals.size(), 1u);
  EXPECT_EQ(under_way.proposals[0].first, 1);
  EXPECT_EQ(under_way.proposals[0].second.record.configuration_hash, second.record.configuration_hash);
  EXPECT_EQ(under_way.begun_task, 0);
  ASSERT_TRUE(under_way.begun.has_value());
  EXPECT_EQ(under_way.begun->known, 7);
  ASSERT_TRUE(notes_.Forget().ok());
  EXPECT_TRUE(notes_.Load({})->proposals.empty());
}

TEST_F(RoundNotesTest, WithoutAFileNothingIsNoted) {
  options_.rounds = nullptr;
  EXPECT_EQ(notes_.Began().value(), std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(notes_.NoteDefault(0, {Propose(0, 1)}).ok());
  EXPECT_TRUE(notes_.Load({})->proposals.empty());
}

}  // namespace
}  // namespace diapason::tuning
