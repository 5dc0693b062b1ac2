#include "compiler/runtime/launch_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MemoryRange Read(uint64_t at) { return {at, at + 8, false}; }
MemoryRange Write(uint64_t at) { return {at, at + 8, true}; }

TEST(DependenciesOf, ReadersWaitForWritersAndWritersForReaders) {
  // 0 writes a; 1 and 2 read it; 3 writes it again.
  const auto dependencies = DependenciesOf({{Write(0)}, {Read(0), Write(8)}, {Read(0), Write(16)}, {Write(0)}});
  EXPECT_THAT(dependencies[0], IsEmpty());
  EXPECT_THAT(dependencies[1], ElementsAre(0));
  EXPECT_THAT(dependencies[2], ElementsAre(0));
  EXPECT_THAT(dependencies[3], ElementsAre(2, 1)) << "0 is waited for by way of the others";
}

TEST(DependenciesOf, MemoryThatOverlapsInPartCounts) {
  const auto dependencies = DependenciesOf({{{0, 100, true}}, {{99, 120, false}}, {{100, 110, false}}});
  EXPECT_THAT(dependencies[1], ElementsAre(0));
  EXPECT_THAT(dependencies[2], IsEmpty());
}

// 0 and 1 write parts of one tensor, 2 reads it, 3 writes a part of another tensor that has the same memory.
TEST(DependenciesOf, MakersOfThePartsOfATensorDoNotWaitForEachOther) {
  const auto part = [](int tensor, int64_t offset) { return MemoryRange{0, 64, true, {tensor, offset}}; };
  const auto dependencies = DependenciesOf({{part(1, 0)}, {part(1, 4)}, {{0, 64, false}}, {part(2, 4)}, {part(2, 4)}});
  EXPECT_THAT(dependencies[1], IsEmpty());
  EXPECT_THAT(dependencies[2], ElementsAre(1, 0));
  EXPECT_THAT(dependencies[3], ElementsAre(2));
  EXPECT_THAT(dependencies[4], ElementsAre(3)) << "the same part twice";
}

TEST(PlacePaths, AChainStaysOnOnePath) {
  const LaunchPaths paths = PlacePaths({{}, {0}, {1}}, 4);
  EXPECT_EQ(paths.count, 1);
  EXPECT_THAT(paths.last, ElementsAre(2));
  EXPECT_FALSE(paths.steps[0].alone);
  EXPECT_TRUE(paths.steps[1].alone && paths.steps[2].alone);
}

TEST(PlacePaths, BranchesForkAndJoin) {
  // 0 -> 1 -> 3, 0 -> 2 -> 3.
  const LaunchPaths paths = PlacePaths({{}, {0}, {0}, {2, 1}}, 4);
  EXPECT_EQ(paths.count, 2);
  EXPECT_EQ(paths.steps[1].path, 0);
  EXPECT_EQ(paths.steps[2].path, 1);
  EXPECT_THAT(paths.steps[2].waits, ElementsAre(0));
  EXPECT_EQ(paths.steps[3].path, 1) << "behind the later of both";
  EXPECT_THAT(paths.steps[3].waits, ElementsAre(1));
  EXPECT_FALSE(paths.steps[3].alone);
}

TEST(InOrder, IsOnePath) {
  EXPECT_EQ(InOrder(0).count, 0);
  const LaunchPaths paths = InOrder(3);
  EXPECT_EQ(paths.count, 1);
  EXPECT_THAT(paths.last, ElementsAre(2));
}

// What runs behind what, by paths and waits, covers every conflict of memory.
TEST(PlacePaths, RandomLaunchesWaitForAllThatTheyConflictWith) {
  std::mt19937 random(4);
  int side_by_side = 0;
  for (int round = 0; round < 300; ++round) {
    const int count = 1 + static_cast<int>(random() % 30), most = 1 + static_cast<int>(random() % 4);
    std::vector<std::vector<MemoryRange>> launches(count);
    for (auto& launch : launches)
      for (int i = 0; i < 3; ++i) launch.push_back({random() % 40, 0, random() % 3 == 0});
    for (auto& launch : launches)
      for (MemoryRange& range : launch) range.end = range.begin + 1 + random() % 4;
    const LaunchPaths paths = PlacePaths(DependenciesOf(launches), most);
    ASSERT_LE(paths.count, most);
    std::vector<std::vector<bool>> after(count, std::vector<bool>(count, false));
    std::vector<int> last(paths.count, -1);
    for (int i = 0; i < count; ++i) {
      const PathStep& step = paths.steps[i];
      std::vector<int> direct = step.waits;
      if (last[step.path] >= 0) direct.push_back(last[step.path]);
      for (int j : direct) {
        ASSERT_LT(j, i);
        after[i][j] = true;
        for (int k = 0; k < j; ++k) after[i][k] = after[i][k] || after[j][k];
      }
      last[step.path] = i;
      for (int j = 0; j < i; ++j) {
        bool conflict = false;
        for (const MemoryRange& a : launches[i])
          for (const MemoryRange& b : launches[j])
            conflict |= (a.written || b.written) && a.begin < b.end && b.begin < a.end;
        ASSERT_TRUE(!conflict || after[i][j]) << round << ": " << i << " may run beside " << j;
        side_by_side += !after[i][j];
      }
    }
    ASSERT_EQ(last, paths.last);
  }
  EXPECT_GT(side_by_side, 1000);
}

}  // namespace
}  // namespace diapason
