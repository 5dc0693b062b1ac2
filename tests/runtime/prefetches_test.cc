#include "compiler/runtime/prefetches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kCache = 48 * kMiB;  // a window of 16 MiB, groups of 2

// A launch that reads a weight of its own, `weight` MiB, and what the one before has written.
std::vector<MemoryRange> Layer(int index, int64_t weight) {
  const uint64_t at = uint64_t{1} << 40, activations = uint64_t{1} << 50;
  const auto begin = at + static_cast<uint64_t>(index) * 64 * kMiB;
  const auto in = activations + static_cast<uint64_t>(index % 2) * kMiB, out = activations + (1 - index % 2) * kMiB;
  return {
      {in, in + kMiB, false}, {begin, begin + static_cast<uint64_t>(weight * kMiB), false}, {out, out + kMiB, true}};
}

std::vector<std::vector<MemoryRange>> Layers(int count, int64_t weight) {
  std::vector<std::vector<MemoryRange>> layers;
  for (int i = 0; i < count; ++i) layers.push_back(Layer(i, weight));
  return layers;
}

// Launches whose weights are asked for, by prefetch.
std::vector<size_t> ReadersOf(const Prefetch& prefetch) {
  std::vector<size_t> readers;
  for (const ArgumentPlace& piece : prefetch.pieces) readers.push_back(piece.launch);
  return readers;
}

TEST(PlanPrefetches, WhatFitsInTheCacheStaysThere) { EXPECT_THAT(PlanPrefetches(Layers(12, 2), kCache), IsEmpty()); }

TEST(PlanPrefetches, WeightsComeAWindowAhead) {
  const std::vector<Prefetch> prefetches = PlanPrefetches(Layers(16, 2), kCache);
  ASSERT_EQ(prefetches.size(), 16u);
  for (size_t i = 0; i < prefetches.size(); ++i) {
    EXPECT_THAT(prefetches[i].pieces, ElementsAre(ArgumentPlace{i, 1})) << "activations are written";
    // Eight weights of 2 MiB are on their way at a time.
    EXPECT_EQ(prefetches[i].after, i < 8 ? -1 : static_cast<int>(i) - 8);
  }
}

TEST(PlanPrefetches, SmallWeightsShareARequest) {
  std::vector<std::vector<MemoryRange>> launches = Layers(40, 1);
  // Two more arguments that are too small to be worth one.
  launches[0].push_back({8, 8 + 4096, false});
  const std::vector<Prefetch> prefetches = PlanPrefetches(launches, kCache);
  ASSERT_EQ(prefetches.size(), 20u);
  EXPECT_THAT(ReadersOf(prefetches[0]), ElementsAre(0, 1));
  EXPECT_THAT(ReadersOf(prefetches[19]), ElementsAre(38, 39));
}

TEST(PlanPrefetches, ARequestHasAtMostEightPieces) {
  std::vector<std::vector<MemoryRange>> launches = Layers(16, 2);
  for (int i = 0; i < 20; ++i) launches[0].push_back({uint64_t(i) * kMiB, uint64_t(i) * kMiB + 65536, false});
  const std::vector<Prefetch> prefetches = PlanPrefetches(launches, kCache);
  for (const Prefetch& prefetch : prefetches) EXPECT_LE(prefetch.pieces.size(), Prefetch::kMostPieces);
  EXPECT_EQ(ReadersOf(prefetches[1]).size(), 8u);
}

TEST(PlanPrefetches, AWeightIsFetchedForItsFirstReader) {
  std::vector<std::vector<MemoryRange>> launches = Layers(16, 2);
  launches[5][1] = launches[2][1];
  for (const Prefetch& prefetch : PlanPrefetches(launches, kCache))
    for (const ArgumentPlace& piece : prefetch.pieces) EXPECT_NE(piece.launch, 5u);
}

TEST(PlanPrefetches, WhatAnyLaunchWritesIsNot) {
  std::vector<std::vector<MemoryRange>> launches = Layers(16, 2);
  MemoryRange part = launches[3][1];
  part.begin += kMiB;
  part.written = true;
  launches[9].push_back(part);
  for (const Prefetch& prefetch : PlanPrefetches(launches, kCache))
    for (const ArgumentPlace& piece : prefetch.pieces) EXPECT_NE(piece.launch, 3u);
}

// An embedding, of which a run reads some rows.
TEST(PlanPrefetches, WhatIsLargerThanHalfTheWindowIsLeftToItsReader) {
  std::vector<std::vector<MemoryRange>> launches = Layers(16, 2);
  launches[3] = Layer(3, 9);
  const std::vector<Prefetch> prefetches = PlanPrefetches(launches, kCache);
  EXPECT_EQ(prefetches.size(), 15u);
  for (const Prefetch& prefetch : prefetches) EXPECT_THAT(ReadersOf(prefetch), ::testing::Not(ElementsAre(3)));
}

// Weights of a launch that are more than a window together come as it begins: then it reads them itself.
TEST(PlanPrefetches, NoneComesWithItsReader) {
  std::vector<std::vector<MemoryRange>> launches;
  for (int i = 0; i < 4; ++i) {
    std::vector<MemoryRange>& launch = launches.emplace_back();
    for (int part = 0; part < 4; ++part) launch.push_back(Layer(8 * i + part, 7)[1]);
  }
  for (const Prefetch& prefetch : PlanPrefetches(launches, kCache))
    EXPECT_TRUE(prefetch.after < 0 || prefetch.after + 1 < static_cast<int>(prefetch.pieces[0].launch));
}

}  // namespace
}  // namespace diapason
