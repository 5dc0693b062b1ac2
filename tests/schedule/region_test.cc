#include "compiler/schedule/region.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace diapason {
namespace {

// Loops inside the attach point, by coefficient and extent.
using Loops = std::vector<std::pair<int64_t, int64_t>>;

// The region that loads need which differ in their constants alone.
Region RegionOf(const Loops& loops, const std::vector<int64_t>& constants, int64_t whole = 1000) {
  Region region;
  region.Clear();
  ShortList<Level, 10> steps;
  for (const auto& [coefficient, extent] : loops) steps.push_back({coefficient, extent});
  for (int64_t constant : constants) {
    IndexTerms terms;
    terms.constant = constant;
    int64_t span = 1;
    for (size_t l = 0; l < loops.size(); ++l) {
      terms.inner.push_back({0, static_cast<int>(l), loops[l].first});
      span += loops[l].first * (loops[l].second - 1);
    }
    region.Include(terms, span);
  }
  region.Finish(whole, steps);
  return region;
}

Loops LevelsOf(const Region& region) {
  Loops levels;
  for (const Level& level : region.levels) levels.emplace_back(level.unit, level.extent);
  return levels;
}

TEST(Region, LoopsThatTouchAreOneLevelInWhateverOrderTheyCome) {
  const Region region = RegionOf({{8, 4}, {1, 2}, {2, 4}}, {0});
  EXPECT_FALSE(region.full);
  EXPECT_EQ(region.extent, 32);
  EXPECT_EQ(LevelsOf(region), (Loops{{1, 32}}));
}

TEST(Region, GapsBetweenTilesAreNotStored) {
  const Region region = RegionOf({{1, 4}, {16, 3}}, {0});
  EXPECT_EQ(region.extent, 12);
  EXPECT_EQ(LevelsOf(region), (Loops{{1, 4}, {16, 3}}));
}

TEST(Region, OverlappingWindowsBecomeTheirHull) {
  const Region region = RegionOf({{2, 5}, {1, 3}}, {0});  // a window of 3 that moves by 2
  EXPECT_EQ(region.extent, 11);
  EXPECT_EQ(LevelsOf(region), (Loops{{1, 11}}));
}

TEST(Region, LoadsAtSeveralConstantsSpanAllOfThem) {
  const Region region = RegionOf({{1, 4}}, {1, -1, 3});
  EXPECT_EQ(region.constant_min, -1);
  EXPECT_EQ(region.extent, 8);
  EXPECT_EQ(LevelsOf(region), (Loops{{1, 8}}));
}

TEST(Region, OneElementHasOneLevel) {
  const Region region = RegionOf({{5, 1}}, {7});
  EXPECT_EQ(region.extent, 1);
  EXPECT_EQ(LevelsOf(region), (Loops{{1, 1}}));
}

TEST(Region, IsTheWholeDimensionWithoutLoadsOrWhereAnIndexFalls) {
  for (const Region& region : {RegionOf({}, {}, 40), RegionOf({{-1, 4}}, {0}, 40)}) {
    EXPECT_TRUE(region.full);
    EXPECT_EQ(region.extent, 40);
    EXPECT_EQ(LevelsOf(region), (Loops{{1, 40}}));
  }
}

TEST(Region, IsTheWholeDimensionWhereLoadsMoveWithDifferentLoopsOutside) {
  Region region;
  region.Clear();
  for (int loop : {0, 1}) {
    IndexTerms terms;
    terms.outer.push_back({0, loop, 1});
    region.Include(terms, 1);
  }
  region.Finish(40, {});
  EXPECT_TRUE(region.full);
  EXPECT_EQ(region.extent, 40);
}

TEST(Region, LoadsWithDifferentLoopsInsideShareAHull) {
  Region region;
  region.Clear();
  for (int loop : {0, 1}) {
    IndexTerms terms;
    terms.constant = 2 * loop;
    terms.inner.push_back({0, loop, 1});
    region.Include(terms, 4);
  }
  region.Finish(40, {});
  EXPECT_FALSE(region.full);
  EXPECT_EQ(LevelsOf(region), (Loops{{1, 6}}));
}

TEST(Region, NothingStaysOfLoadsBeforeItWasCleared) {
  Region region = RegionOf({{1, 4}}, {-5, 5});
  region.Clear();
  IndexTerms terms;
  terms.constant = 3;
  region.Include(terms, 1);
  region.Finish(40, {});
  EXPECT_EQ(region.constant_min, 3);
  EXPECT_EQ(region.extent, 1);
}

TEST(Region, AlignsRunsOfNeighboursAlone) {
  Region run = RegionOf({{1, 6}}, {-3});
  run.Align(4);
  EXPECT_EQ(run.constant_min, -4);
  EXPECT_EQ(run.extent, 8);
  EXPECT_EQ(LevelsOf(run), (Loops{{1, 8}}));
  for (Region region : {RegionOf({{2, 6}}, {-3}), RegionOf({}, {-3}), RegionOf({}, {}, 7)}) {
    const Loops before = LevelsOf(region);
    region.Align(4);
    EXPECT_EQ(LevelsOf(region), before);
  }
}

TEST(Region, CompactCoordinatesGoOverLevelsOneByOne) {
  const Region region = RegionOf({{1, 4}, {16, 3}}, {0});
  int64_t compact = 0;
  EXPECT_EQ(LevelOf(region, 2, &compact), 0);
  EXPECT_EQ(compact, 2);
  EXPECT_EQ(LevelOf(region, 32, &compact), 1);
  EXPECT_EQ(compact, 8);
  // And back: the loop over 4 elements moves by 1, that over 3 tiles by 16; one over pairs of all 12 by no one number.
  EXPECT_EQ(region.CoordinateStep(1, 4), 1);
  EXPECT_EQ(region.CoordinateStep(4, 3), 16);
  EXPECT_EQ(region.CoordinateStep(2, 6), 0);
}

}  // namespace
}  // namespace diapason
