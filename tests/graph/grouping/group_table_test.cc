#include "compiler/graph/grouping/group_table.h"

#include "testing.h"

namespace diapason {
namespace {

TEST(GroupTable, AGroupHasAtMost128Nodes) {
  GraphBuilder b;
  int x = b.In({4});
  for (int n = 0; n < 130; ++n) x = b.Op("neg", {x});
  GroupedNetwork g(b.Out({x}));
  const int group = g.table.Open(0);
  for (int n = 1; n < 128; ++n) ASSERT_TRUE(g.table.Append(group, {n})) << n;
  EXPECT_FALSE(g.table.Append(group, {128}));
  EXPECT_EQ(g.table.group(group).nodes.size(), 128u);
  EXPECT_EQ(g.table.group_of(128), -1) << "a refused node has no group";
}

// The expression of x^(2^k) has 2^(k+1) - 1 terms when it is inlined.
TEST(GroupTable, AGroupStaysSmallWhenItsNodesAreInlined) {
  GraphBuilder b;
  std::vector<int> squares{b.In({4})};
  for (int n = 0; n < 10; ++n) squares.push_back(b.Op("mul", {squares.back(), squares.back()}));
  GroupedNetwork g(b.Out({squares.back()}));
  EXPECT_TRUE(g.table.MayHold({0, 1, 2, 3, 4}, {8, 7, 6, 5}));
  EXPECT_FALSE(g.table.MayHold({0, 1, 2, 3, 4}, {9, 8, 7, 6, 5}));
}

TEST(GroupTable, TheResultOfAnAnchorIsNotInlined) {
  GraphBuilder b;
  int x = b.In({4, 4});
  std::vector<int> nodes;
  for (int n = 0; n < 12; ++n) {
    x = n == 6 ? b.Op("matmul", {x, x}) : b.Op("mul", {x, x});
    nodes.push_back(n);
  }
  GroupedNetwork g(b.Out({x}));
  EXPECT_TRUE(g.table.MayHold(nodes, {}));
}

TEST(GroupTable, AppendsNothingWithoutNodes) {
  GraphBuilder b;
  GroupedNetwork g(b.Out({b.Op("neg", {b.In({4})})}));
  EXPECT_FALSE(g.table.Append(g.table.Open(0), {}));
}

TEST(GroupTable, FindsTheGroupThatEndsInATensor) {
  GraphBuilder b;
  const int x = b.In({4}), first = b.Op("neg", {x}), second = b.Op("exp", {first}), third = b.Op("abs", {second});
  GroupedNetwork g(b.Out({third}));
  const int group = g.Open(first);
  ASSERT_TRUE(g.table.Append(group, {g.NodeOf(second)}));
  EXPECT_EQ(g.table.GroupThatEndsIn(x), -1) << "an input";
  EXPECT_EQ(g.table.GroupThatEndsIn(first), -1) << "in the middle of its group";
  EXPECT_EQ(g.table.GroupThatEndsIn(second), group);
  EXPECT_EQ(g.table.GroupThatEndsIn(third), -1) << "has no group";
}

TEST(GroupTable, FindsTheGroupOfAResultThatOnlyCertainNodesRead) {
  GraphBuilder b;
  const int first = b.Op("neg", {b.In({4})}), one = b.Op("exp", {first}), other = b.Op("abs", {first});
  const int given_out = b.Op("neg", {one});
  GroupedNetwork g(b.Out({other, given_out}));
  const int group = g.Open(first);
  g.Open(given_out);
  EXPECT_EQ(g.table.GroupReadOnlyBy(first, [](int) { return true; }), group);
  EXPECT_EQ(g.table.GroupReadOnlyBy(first, [&](int n) { return n == g.NodeOf(one); }), -1);
  EXPECT_EQ(g.table.GroupReadOnlyBy(given_out, [](int) { return true; }), -1) << "the network gives it out";
}

TEST(GroupTable, FollowsAllPathsFromATensorToTheNodeInWhichTheyMeet) {
  GraphBuilder b;
  const int x = b.In({4}), left = b.Op("neg", {x}), right = b.Op("exp", {x}), deeper = b.Op("abs", {right});
  const int meeting = b.Op("mul", {left, deeper}), behind = b.Op("relu", {meeting});
  GroupedNetwork g(b.Out({behind}));
  const auto any = [](int) { return true; };
  EXPECT_EQ(g.table.NodesUpToMeeting(x, 4, any), g.NodesOf({left, right, deeper, meeting}));
  EXPECT_EQ(g.table.NodesUpToMeeting(x, 3, any), std::vector<int>()) << "too many nodes";
  EXPECT_EQ(g.table.NodesUpToMeeting(x, 4, [&](int n) { return n != g.NodeOf(deeper); }), std::vector<int>());
  g.Open(right);
  EXPECT_EQ(g.table.NodesUpToMeeting(x, 4, any), std::vector<int>()) << "one has a group";
}

TEST(GroupTable, PathsDoNotMeetWhereAResultIsGivenOut) {
  GraphBuilder b;
  const int x = b.In({4}), left = b.Op("neg", {x}), right = b.Op("exp", {x});
  GroupedNetwork g(b.Out({b.Op("mul", {left, right}), left}));
  EXPECT_EQ(g.table.NodesUpToMeeting(x, 8, [](int) { return true; }), std::vector<int>());
}

TEST(GroupTable, MovesNodesInOrder) {
  GraphBuilder b;
  const int first = b.Op("neg", {b.In({4})}), second = b.Op("exp", {first}), third = b.Op("abs", {second});
  GroupedNetwork g(b.Out({third}));
  const int from = g.Open(second), to = g.Open(first);
  ASSERT_TRUE(g.table.Append(to, {g.NodeOf(third)}));
  g.table.MoveNodes(from, to);
  EXPECT_EQ(g.table.group(to).nodes, g.NodesOf({first, second, third}));
  EXPECT_TRUE(g.table.group(from).nodes.empty());
  EXPECT_EQ(g.GroupOf(second), to);
  g.Finish();
  EXPECT_EQ(g.grouping.groups.size(), 1u);
}

TEST(GroupTable, MergesTwoGroupsWithANodeThatIsTheirAnchor) {
  GraphBuilder b;
  const int x = b.In({4, 4}), product = b.Op("matmul", {x, x}), left = b.Op("neg", {product});
  const int last = b.Op("matmul", {left, x});
  GroupedNetwork g(b.Out({last}));
  const int first = g.Open(product), second = g.Open(left);
  const int merged = g.table.Merge(first, second, g.NodeOf(last));
  EXPECT_EQ(g.table.group(merged).nodes, g.NodesOf({product, left, last}));
  EXPECT_EQ(g.table.group(merged).anchor, g.NodeOf(last));
  EXPECT_EQ(g.GroupOf(product), merged);
  EXPECT_EQ(g.table.group(first).nodes.size() + g.table.group(second).nodes.size(), 0u);
}

TEST(GroupTable, ViewsHaveTheMemoryOfWhatTheyAreViewsOf) {
  GraphBuilder b;
  const int source = b.Op("neg", {b.In({4, 6})});
  const int first = b.Op("reshape", {source}, {{"shape", Ints{24}}});
  const int second = b.Op("reshape", {first}, {{"shape", Ints{6, 4}}});
  const int last = b.Op("exp", {second});
  GroupedNetwork g(b.Out({last}));
  g.table.AddView(g.NodeOf(first));
  g.table.AddView(g.NodeOf(second));
  EXPECT_TRUE(g.table.IsView(second));
  EXPECT_EQ(g.table.OwnerOf(second), source);
  EXPECT_EQ(g.table.OwnerOf(source), source);
  const int group = g.Open(last);
  g.table.MoveViews(g.NodesOf({second, first}), group);
  EXPECT_FALSE(g.table.IsView(first));
  EXPECT_EQ(g.table.group(group).nodes, g.NodesOf({first, second, last}));
  EXPECT_EQ(g.GroupOf(second), group);
  g.Finish();
  EXPECT_TRUE(g.grouping.alias_of.empty());
}

TEST(GroupTable, FinishesInOrderOfExecutionWithCopiesAndPlaces) {
  GraphBuilder b;
  const int x = b.In({2, 4}), part = b.Op("neg", {x}), joined = b.Concat({x, part}, 1), last = b.Op("exp", {joined});
  GroupedNetwork g(b.Out({last}));
  const OutputPlace left{4, 8, 0, 16}, right{4, 8, 4, 16};
  g.Open(last);
  const int group = g.Open(part);
  g.table.AddOption(g.NodeOf(joined), FusionMode::kKernel);
  g.table.PlaceOutput(group, joined, right);
  g.table.AddCopy(x, g.NodeOf(joined), left);
  EXPECT_EQ(g.Finish(), (FusionOptions{{joined, FusionMode::kKernel}}));
  ASSERT_EQ(g.grouping.groups.size(), 3u);
  EXPECT_EQ(g.grouping.groups[0], (Group{g.NodesOf({part}), -1, -1, g.NodeOf(part), joined, right}));
  EXPECT_EQ(g.grouping.groups[1], (Group{{}, -1, x, g.NodeOf(joined), joined, left}));
  EXPECT_EQ(g.grouping.groups[2], (Group{g.NodesOf({last}), -1, -1, g.NodeOf(last), last, {}}));
}

TEST(GroupTable, SumsFollowTheGroupThatMakesTheirTensor) {
  GraphBuilder b;
  const int x = b.In({2, 64}), row = b.Op("neg", {x}), sums = b.Op("run_sums", {row}), more = b.Op("run_sums", {row});
  GroupedNetwork g(b.Out({row, sums, more}));
  EXPECT_FALSE(g.table.Follow(row, g.NodeOf(sums))) << "nothing makes it yet";
  const int group = g.Open(row);
  EXPECT_TRUE(g.table.Follow(row, g.NodeOf(sums)));
  EXPECT_EQ(g.GroupOf(sums), group);
  EXPECT_FALSE(g.table.Follow(row, g.NodeOf(more))) << "one follows";
  g.Open(more);
  g.Finish();
  EXPECT_EQ(g.grouping.groups[0].follower, g.NodeOf(sums));
  EXPECT_EQ(g.grouping.groups[0].output, row);
}

TEST(GroupTable, ARecurrenceMayBeLargeAndTakesNoMoreNodes) {
  GraphBuilder b;
  std::vector<int> chain{b.Op("neg", {b.In({4})})};
  for (int i = 0; i < 200; ++i) chain.push_back(b.Op("neg", {chain.back()}));
  const int last = b.Op("exp", {chain.back()});
  GroupedNetwork g(b.Out({last}));
  g.table.OpenRecurrence(g.NodesOf(chain));
  EXPECT_EQ(g.GroupOf(chain[100]), 0);
  EXPECT_EQ(g.table.GroupThatEndsIn(chain.back()), -1);
  g.Open(last);
  g.Finish();
  ASSERT_EQ(g.grouping.groups.size(), 2u);
  EXPECT_TRUE(g.grouping.groups[0].recurrence);
  EXPECT_EQ(g.grouping.groups[0].nodes, g.NodesOf(chain));
  EXPECT_EQ(g.grouping.groups[0].anchor, -1);
}

TEST(GroupTable, KnowsTheChoiceForANode) {
  GraphBuilder b;
  const int x = b.In({4}), first = b.Op("neg", {x}), second = b.Op("exp", {first});
  GroupedNetwork g(b.Out({second}), {{second, FusionMode::kApart}});
  EXPECT_EQ(g.table.ModeOf(g.NodeOf(first)), FusionMode::kDefault);
  EXPECT_EQ(g.table.ModeOf(g.NodeOf(second)), FusionMode::kApart);
}

}  // namespace
}  // namespace diapason
