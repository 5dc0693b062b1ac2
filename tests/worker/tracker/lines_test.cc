// The lines of queues: whose request is next.
#include "worker/tracker/lines.h"

#include <algorithm>

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

class LinesTest : public PartsTest {
 protected:
  // Ids of the next requests for any worker, "queue:id".
  std::vector<std::string> TakeAll() {
    std::vector<std::string> taken;
    while (const RequestPtr request = lines_.Take(kClass, {}, [](const Request&) { return true; }))
      taken.push_back(request->queue->id + ":" + std::to_string(request->message.id()));
    return taken;
  }
  void Put(Queue& queue, uint64_t id, bool in_front = false) { lines_.Put(AddRequest(queue, id), in_front); }
};

TEST_F(LinesTest, PriorityFirstThenShares) {
  Queue &much = AddQueue("much", 0, 2), &little = AddQueue("little", 0, 1), &urgent = AddQueue("urgent", 1, 1);
  for (uint64_t id = 1; id <= 4; ++id) Put(much, id);
  for (uint64_t id = 1; id <= 2; ++id) Put(little, id);
  Put(urgent, 1);
  const std::vector<std::string> taken = TakeAll();
  ASSERT_EQ(taken.size(), 7u);
  EXPECT_EQ(taken.front(), "urgent:1");
  // Of each three, two are of the queue with twice the weight.
  EXPECT_EQ(std::count_if(taken.begin() + 1, taken.begin() + 4, [](const auto& id) { return id.starts_with("much"); }),
            2);
  EXPECT_FALSE(lines_.Has(kClass));
}

TEST_F(LinesTest, OneThatIsPutInFrontIsNext) {
  Queue& queue = AddQueue("q");
  Put(queue, 1);
  Put(queue, 2, /*in_front=*/true);
  EXPECT_EQ(lines_.Count(kClass), 2u);
  EXPECT_EQ(TakeAll(), (std::vector<std::string>{"q:2", "q:1"}));
}

TEST_F(LinesTest, OnesThatMayNotBeTakenStay) {
  Queue& queue = AddQueue("q");
  for (uint64_t id = 1; id <= 2; ++id) Put(queue, id);
  EXPECT_EQ(lines_.Take(kClass, {}, [](const Request& r) { return r.message.id() == 2; })->message.id(), 2u);
  EXPECT_EQ(lines_.Take(kClass, {}, [](const Request&) { return false; }), nullptr);
  lines_.Remove(queue.unfinished.at(1));
  EXPECT_FALSE(lines_.Has(kClass));
}

}  // namespace
}  // namespace diapason::tracker
