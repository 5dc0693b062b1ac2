// What a turn changes is stored before its answers go out.
#include "worker/tracker/journal.h"

#include <gtest/gtest.h>

#include "tests/worker/testing.h"

namespace diapason::tracker {
namespace {

TEST(Journal, AnswersGoOutWhenTheTurnIsStored) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/state.db";
  Queue queue;
  queue.id = "q";
  queue.open.set_name("name");
  {
    Journal journal(*TrackerStore::Open(path), /*pause=*/{});
    EXPECT_TRUE(journal.keeps());
    journal.PutQueue(queue);
    int answers = 0;
    journal.Answer([&] { ++answers; });
    EXPECT_EQ(answers, 0);
    for (const auto& answer : journal.EndTurn()) answer();
    EXPECT_EQ(answers, 1);
    EXPECT_TRUE(journal.EndTurn().empty());
    journal.EraseQueue(queue);  // in a turn that does not end
  }
  Journal journal(*TrackerStore::Open(path), /*pause=*/{});
  const absl::StatusOr<TrackerState> state = journal.Load();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->queues.size(), 1u);
  EXPECT_EQ(state->queues[0].open.name(), "name");
}

TEST(Journal, WithoutAStoreAnswersGoOutAtOnce) {
  Journal journal(nullptr, std::chrono::milliseconds(10));
  EXPECT_FALSE(journal.keeps());
  journal.PutQueue(Queue());
  journal.Answer([] {});
  EXPECT_EQ(journal.EndTurn().size(), 1u);
}

}  // namespace
}  // namespace diapason::tracker
