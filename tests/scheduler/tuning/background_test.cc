// Searches and the wait for outcomes, beside the run.
#include "scheduler/tuning/background.h"

#include <optional>
#include <variant>

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using BackgroundTest = RunTest;

TEST_F(BackgroundTest, ASearchEndsWithItsProposals) {
  EventQueue<Event> events;
  SearchThread search(events);
  search.Start(tasks_.at(1), 4, nullptr, {});
  EXPECT_TRUE(search.runs());
  const std::optional<Event> event = events.Pop(60);
  ASSERT_TRUE(event.has_value());
  const auto& done = std::get<SearchDone>(*event);
  search.End(tasks_.at(done.task));
  EXPECT_FALSE(search.runs());
  EXPECT_EQ(done.task, 1);
  EXPECT_EQ(done.asked, 4);
  EXPECT_EQ(done.proposals.size(), 4u);
}

TEST_F(BackgroundTest, OutcomesAreCollectedUntilTheMeasurerBreaks) {
  EventQueue<Event> events;
  Collector collector(measurer_, events);
  collector.Start();
  MeasureRequest request;
  request.id = 9;
  request.workload = tasks_.at(0).workload();
  request.schedule = Propose(0, 1).record.schedule;
  ASSERT_TRUE(measurer_.Submit({request}).ok());
  const std::optional<Event> outcomes = events.Pop(60);
  ASSERT_TRUE(outcomes.has_value());
  EXPECT_EQ(std::get<std::vector<MeasureOutcome>>(*outcomes).at(0).id, 9);
  measurer_.Break(absl::UnavailableError("no worker"));
  const std::optional<Event> broken = events.Pop(60);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(std::get<absl::Status>(*broken), absl::UnavailableError("no worker"));
}

}  // namespace
}  // namespace diapason::tuning
