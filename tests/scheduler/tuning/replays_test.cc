// Results of a run that is played again.
#include "scheduler/tuning/replays.h"

#include <algorithm>
#include <limits>

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using ReplaysTest = RunTest;

TuningRecord RecordWith(int64_t id, uint64_t hash, Verified verified) {
  TuningRecord record;
  record.id = id;
  record.configuration_hash = hash;
  record.verified = verified;
  return record;
}

TEST_F(ReplaysTest, EachIsTakenOnceAndTheFirstOneCounts) {
  replays_.Put(1, RecordWith(7, 70, Verified::kUnknown));
  replays_.Put(1, RecordWith(8, 70, Verified::kUnknown));
  EXPECT_EQ(replays_.left(1), 1);
  EXPECT_FALSE(replays_.Take(0, 70).has_value());
  EXPECT_EQ(replays_.Take(1, 70)->id, 7);
  EXPECT_FALSE(replays_.Take(1, 70).has_value());
  EXPECT_TRUE(replays_.empty());
  EXPECT_FALSE(replays_.TakeVerdict(7).has_value());
}

TEST_F(ReplaysTest, VerdictsAreThoseOfResultsThatWereTaken) {
  replays_.Put(0, RecordWith(7, 70, Verified::kOk));
  EXPECT_FALSE(replays_.TakeVerdict(7).has_value());
  EXPECT_TRUE(replays_.Take(0, 70).has_value());
  EXPECT_EQ(replays_.TakeVerdict(7)->verified, Verified::kOk);
  EXPECT_FALSE(replays_.TakeVerdict(7).has_value());
}

TEST_F(ReplaysTest, TheBeginningIsThatOfTheFirstRun) {
  const int64_t second = history_->StartRun({}).value();
  const std::vector<TuningRun> runs = history_->Runs().value();
  ASSERT_EQ(runs.size(), 2u);
  const int64_t first = std::min(runs[0].started_at, runs[1].started_at);
  EXPECT_EQ(BeginningOf({runs[0].id, runs[1].id}, *history_).value(), first);
  EXPECT_GE(BeginningOf({second}, *history_).value(), first);
  EXPECT_EQ(BeginningOf({}, *history_).value(), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace diapason::tuning
