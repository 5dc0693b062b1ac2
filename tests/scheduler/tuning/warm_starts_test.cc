// What rounds begin with.
#include "scheduler/tuning/warm_starts.h"

#include <limits>

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using WarmStartsTest = RunTest;

TEST_F(WarmStartsTest, ATaskBeginsWithWhatAnotherFound) {
  EXPECT_TRUE(warm_starts_.For(1, 16).empty());
  Measure(0, 5, 1e-4);
  const std::vector<Suggestion> suggestions = warm_starts_.For(1, 16);
  ASSERT_EQ(suggestions.size(), 1u);
  EXPECT_EQ(suggestions[0].configuration, Propose(0, 5).record.configuration);
  options_.warm_start = false;
  EXPECT_TRUE(warm_starts_.For(1, 16).empty());
}

TEST_F(WarmStartsTest, TheHistoryIsAskedForOtherWorkloads) {
  const ComputeDag dag = FakeDag(64);
  ASSERT_TRUE(history_->LinkNetwork({{"other", dag.workload_key(), SerializeDag(dag), "t", 1}}).ok());
  TuningRecord record = Propose(0, 3).record;
  record.workload_key = dag.workload_key();
  record.run_id = history_->StartRun({}).value();
  record.target = options_.target.ToString();
  record.device_model = "fake device";
  record.outcome = FakeMeasurer::Time(1e-4).outcome;
  ASSERT_TRUE(history_->Append({record}).ok());
  ASSERT_TRUE(warm_starts_.Load(/*before=*/0).ok());
  EXPECT_TRUE(warm_starts_.For(1, 16).empty());  // it is of a later time
  ASSERT_TRUE(warm_starts_.Load(std::numeric_limits<int64_t>::max()).ok());
  EXPECT_EQ(warm_starts_.For(1, 16).size(), 1u);
}

}  // namespace
}  // namespace diapason::tuning
