#include "compiler/graph/grouping/concat_placement.h"

#include "testing.h"

namespace diapason {
namespace {

// Groups the parts of a concatenation, one node each, puts it in place and finishes.
bool PutInPlace(GroupedNetwork& g, const std::vector<int>& parts, const std::vector<int>& concats) {
  ConcatPlacement placement(&g.table);
  for (int part : parts) g.Open(part);
  bool last = false;
  for (int concat : concats) last = placement.PutInPlace(g.NodeOf(concat));
  placement.AssignOutputs();
  return last;
}

TEST(ConcatPlacement, GivesEachPartItsRowsOfTheResult) {
  GraphBuilder b;
  const int x = b.In({2, 3}), left = b.Op("neg", {x}), right = b.Op("exp", {b.In({2, 5})});
  const int joined = b.Concat({left, right}, -1);
  GroupedNetwork g(b.Out({joined}), {{joined, FusionMode::kInPlace}});
  EXPECT_TRUE(PutInPlace(g, {left, right}, {joined}));
  EXPECT_EQ(g.Finish(), (FusionOptions{{joined, FusionMode::kKernel}}));
  ASSERT_EQ(g.grouping.groups.size(), 2u);
  EXPECT_EQ(g.grouping.groups[0].output, joined);
  EXPECT_EQ(g.grouping.groups[0].place, (OutputPlace{3, 8, 0, 16}));
  EXPECT_EQ(g.grouping.groups[1].place, (OutputPlace{5, 8, 3, 16}));
}

TEST(ConcatPlacement, OffersThePlaceWhereItWasNotChosen) {
  GraphBuilder b;
  const int x = b.In({2, 3}), left = b.Op("neg", {x}), right = b.Op("exp", {x}), joined = b.Concat({left, right}, 0);
  GroupedNetwork g(b.Out({joined}));
  EXPECT_FALSE(PutInPlace(g, {left, right}, {joined}));
  EXPECT_EQ(g.Finish(), (FusionOptions{{joined, FusionMode::kInPlace}}));
  EXPECT_TRUE(g.grouping.groups[0].place.whole());
}

TEST(ConcatPlacement, CopiesOnePartAtMost) {
  GraphBuilder b;
  const int x = b.In({2, 3}), y = b.In({2, 3}), made = b.Op("neg", {x});
  const int one = b.Concat({made, x}, 1), two = b.Concat({x, b.Op("exp", {x}), y}, 1);
  const int none_made = b.Concat({x}, 1);
  GroupedNetwork g(b.Out({one, two, none_made}),
                   {{one, FusionMode::kInPlace}, {two, FusionMode::kInPlace}, {none_made, FusionMode::kInPlace}});
  EXPECT_TRUE(PutInPlace(g, {made}, {one}));
  EXPECT_FALSE(PutInPlace(g, {}, {two})) << "two parts are inputs";
  EXPECT_FALSE(PutInPlace(g, {}, {none_made})) << "a copy of all is a kernel as well";
  EXPECT_EQ(g.Finish(), (FusionOptions{{one, FusionMode::kKernel}}));
  ASSERT_EQ(g.grouping.groups.size(), 2u);
  EXPECT_EQ(g.grouping.groups[1].copied, x);
  EXPECT_EQ(g.grouping.groups[1].place, (OutputPlace{3, 6, 3, 12}));
}

TEST(ConcatPlacement, CopiesAPartThatIsReadElsewhereOrGivenOut) {
  for (const bool given_out : {false, true}) {
    GraphBuilder b;
    const int x = b.In({2, 3}), left = b.Op("neg", {x}), right = b.Op("exp", {x}), joined = b.Concat({left, right}, 1);
    GroupedNetwork g(b.Out({joined, given_out ? right : b.Op("abs", {right})}), {{joined, FusionMode::kInPlace}});
    EXPECT_TRUE(PutInPlace(g, {left, right}, {joined}));
    g.Finish();
    ASSERT_EQ(g.grouping.groups.size(), 3u);
    EXPECT_TRUE(g.grouping.groups[1].place.whole());
    EXPECT_EQ(g.grouping.groups[2].copied, right);
  }
}

TEST(ConcatPlacement, SeesThroughViews) {
  GraphBuilder b;
  const int x = b.In({2, 3}), source = b.Op("neg", {x}), view = b.Op("reshape", {source}, {{"shape", Ints{3, 2}}});
  const int other = b.Op("exp", {b.In({3, 1})}), joined = b.Concat({view, other}, 1);
  GroupedNetwork g(b.Out({joined}), {{joined, FusionMode::kInPlace}});
  g.table.AddView(g.NodeOf(view));
  EXPECT_TRUE(PutInPlace(g, {source, other}, {joined}));
  g.Finish();
  ASSERT_EQ(g.grouping.groups.size(), 2u);
  EXPECT_EQ(g.grouping.groups[0].place, (OutputPlace{2, 3, 0, 9}));
}

TEST(ConcatPlacement, ReplacesANestedConcatenationByItsParts) {
  GraphBuilder b;
  const int x = b.In({2, 3}), first = b.Op("neg", {x}), second = b.Op("exp", {x}), third = b.Op("abs", {x});
  const int inner = b.Concat({first, second}, 1), outer = b.Concat({inner, third}, 1);
  GroupedNetwork g(b.Out({outer}), {{inner, FusionMode::kInPlace}, {outer, FusionMode::kInPlace}});
  EXPECT_TRUE(PutInPlace(g, {first, second, third}, {inner, outer}));
  g.Finish();
  ASSERT_EQ(g.grouping.groups.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(g.grouping.groups[i].output, outer);
    EXPECT_EQ(g.grouping.groups[i].place, (OutputPlace{3, 9, i * 3, 18}));
  }
}

}  // namespace
}  // namespace diapason
