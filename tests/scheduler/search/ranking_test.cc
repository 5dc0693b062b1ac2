#include "scheduler/search/ranking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint64_t> Hashes(const std::vector<const MeasuredCandidate*>& candidates) {
  std::vector<uint64_t> hashes;
  for (const MeasuredCandidate* one : candidates) hashes.push_back(one->hash);
  return hashes;
}

TEST(Ranking, RanksWhatRanBySpeedThenByHash) {
  Ranking ranking(2);
  ranking.Add({0, {1}, 3e-3, 31});
  ranking.Add({1, {1}, 2e-3, 22});
  ranking.Add({0, {2}, 0, 5});
  ranking.Add({1, {2}, 2e-3, 21});
  ranking.Update();
  EXPECT_THAT(Hashes(ranking.fastest()), ElementsAre(21, 22, 31));
  EXPECT_EQ(ranking.best_seconds(), 2e-3);
  EXPECT_EQ(ranking.space(0).best_seconds, 3e-3);
  EXPECT_EQ(ranking.space(0).failed, 1);
  EXPECT_EQ(ranking.space(1).failed, 0);
}

TEST(Ranking, ShowsResultsFromTheNextUpdateOn) {
  Ranking ranking(1);
  EXPECT_EQ(ranking.best_seconds(), 0);
  ranking.Add({0, {1}, 3e-3, 31});
  EXPECT_THAT(ranking.fastest(), IsEmpty());
  ranking.Update();
  EXPECT_EQ(ranking.best_seconds(), 3e-3);
}

TEST(Ranking, ALaterResultOfACandidateReplacesTheOneBefore) {
  Ranking ranking(1);
  ranking.Add({0, {1}, 1e-3, 31});
  ranking.Add({0, {2}, 2e-3, 32});
  ranking.Update();
  ranking.Add({0, {1}, 5e-3, 31});
  ranking.Update();
  EXPECT_THAT(Hashes(ranking.fastest()), ElementsAre(32, 31));
  EXPECT_EQ(ranking.space(0).best_seconds, 2e-3);
}

TEST(Ranking, HasTheFewFastestOfEachSpace) {
  Ranking ranking(2);
  for (int i = 0; i < 6; ++i) ranking.Add({i % 2, {i}, (6 - i) * 1e-3, static_cast<uint64_t>(i)});
  ranking.Add({1, {7}, 7e-3, 7});
  ranking.Update();
  EXPECT_THAT(Hashes(ranking.space(0).best), ElementsAre(4, 2, 0));
  EXPECT_THAT(Hashes(ranking.space(1).best), ElementsAre(5, 3, 1)) << "not the slowest of four";
}

TEST(Ranking, SharesFavourSpacesNearTheBestAndNeverStarveOne) {
  Ranking ranking(4);
  ranking.Add({0, {1}, 1e-3, 1});
  ranking.Add({1, {1}, 2e-3, 2});
  for (uint64_t i = 0; i < 8; ++i) ranking.Add({2, {static_cast<int32_t>(i)}, 0, 10 + i});
  ranking.Update();
  const std::vector<double> shares = ranking.SampleShares();
  EXPECT_EQ(shares[3], shares[0]) << "not tried: as if it were the best";
  EXPECT_LT(shares[1], shares[0] / 2);
  EXPECT_GT(shares[1], 1.0 / 12);
  EXPECT_GT(shares[2], 0);
  EXPECT_LT(shares[2], 0.02);
  EXPECT_TRUE(ranking.space(2).gives_up());
  EXPECT_LE(std::accumulate(shares.begin(), shares.end(), 0.0), 1 + 1e-9);
}

}  // namespace
}  // namespace diapason
