// Requests that ask for the same: one is measured, the others are parked.
#include "worker/tracker/groups.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using GroupsTest = PartsTest;

TEST_F(GroupsTest, OthersAreParkedWhileOneIsMeasured) {
  const RequestPtr a = Submit(AddQueue("a"), 1), b = Submit(AddQueue("b"), 1), c = Submit(AddQueue("c"), 1, "another");
  EXPECT_EQ(a->share_key, b->share_key);
  EXPECT_NE(a->share_key, c->share_key);
  lines_.Remove(a);
  a->lease = 9;
  groups_.Park(a);
  EXPECT_TRUE(b->parked);
  EXPECT_FALSE(c->parked);
  EXPECT_EQ(groups_.Parked(a), std::vector<RequestPtr>{b});
  EXPECT_EQ(lines_.Count(kClass), 1u);
  a->tried = {"w"};
  EXPECT_TRUE(groups_.Unpark(a));
  EXPECT_FALSE(b->parked);
  EXPECT_EQ(b->tried, std::set<std::string>{"w"});
  EXPECT_EQ(lines_.Count(kClass), 2u);
}

TEST_F(GroupsTest, AQueueThatAsksTwiceWantsTwoMeasurements) {
  Queue& queue = AddQueue("a");
  const RequestPtr first = Submit(queue, 1), second = Submit(queue, 2);
  EXPECT_FALSE(first->share_key.empty());
  EXPECT_TRUE(second->share_key.empty());
}

TEST_F(GroupsTest, AnHeirIsMeasuredInstead) {
  const RequestPtr a = Submit(AddQueue("a"), 1), b = Submit(AddQueue("b"), 1);
  groups_.Park(a);
  groups_.HandOver(a, b);
  groups_.Part(a);
  EXPECT_FALSE(b->parked);
  EXPECT_TRUE(a->share_key.empty());
  EXPECT_TRUE(groups_.Parked(a).empty());
}

}  // namespace
}  // namespace diapason::tracker
