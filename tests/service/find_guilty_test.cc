#include "service/find_guilty.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace diapason {
namespace {

// Knows who is guilty, and counts what it is asked.
struct Oracle {
  std::set<int> guilty;
  std::vector<std::pair<int, int>> pairs = {};  // wrong together only
  double shows = 1;                             // probability that a guilty part makes itself felt
  int questions = 0;
  std::mt19937 random{7};

  IsWrong Answer() {
    return [this](const std::vector<bool>& in_place) -> absl::StatusOr<bool> {
      ++questions;
      bool wrong = false;
      for (int part : guilty) wrong = wrong || (in_place[part] && std::uniform_real_distribution<>()(random) < shows);
      for (const auto& [a, b] : pairs) wrong = wrong || (in_place[a] && in_place[b]);
      return wrong;
    };
  }
};

std::vector<int> Found(Oracle& oracle, int count, int confirmations = 1) {
  absl::StatusOr<std::vector<int>> found = FindGuilty(count, oracle.Answer(), confirmations);
  EXPECT_TRUE(found.ok()) << found.status();
  std::vector<int> sorted = found.value_or(std::vector<int>{});
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

TEST(FindGuiltyTest, NoneWhenTheWholeIsRight) {
  for (int count : {0, 1, 2, 50}) {
    Oracle oracle;
    EXPECT_EQ(Found(oracle, count), std::vector<int>{}) << count;
    EXPECT_EQ(oracle.questions, 2);
  }
}

TEST(FindGuiltyTest, FindsOneWhereverItIs) {
  for (int count : {1, 2, 3, 7, 64, 100}) {
    for (int part = 0; part < count; ++part) {
      Oracle oracle{{part}};
      EXPECT_EQ(Found(oracle, count), std::vector<int>{part}) << "of " << count;
      EXPECT_LE(oracle.questions, 1 + 2 + 7 + 1 + 2) << "part " << part << " of " << count;
    }
  }
}

TEST(FindGuiltyTest, FindsSeveral) {
  for (int a = 0; a < 20; ++a)
    for (int b = a + 1; b < 20; ++b) {
      Oracle two{{a, b}};
      EXPECT_EQ(Found(two, 20), (std::vector<int>{a, b}));
      for (int c = b + 1; c < 20; ++c) {
        Oracle three{{a, b, c}};
        EXPECT_EQ(Found(three, 20), (std::vector<int>{a, b, c}));
      }
    }
  Oracle all{{0, 1, 2, 3, 4}};
  EXPECT_EQ(Found(all, 5), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(FindGuiltyTest, OfTwoThatAreWrongTogetherTheLaterOneGoes) {
  Oracle oracle{{}, {{3, 11}}};
  EXPECT_EQ(Found(oracle, 16), std::vector<int>{11});
  Oracle both{{5}, {{3, 11}}};
  EXPECT_EQ(Found(both, 16), (std::vector<int>{5, 11}));
}

// What shows in nine of ten runs: nearly always the right ones, and never more innocents than a lucky run of "right"
// allows.
TEST(FindGuiltyTest, AFlakyFaultIsFoundAndTheInnocentStay) {
  int exact = 0, missed = 0;
  for (int round = 0; round < 200; ++round) {
    Oracle oracle{{round % 40, (round * 7 + 3) % 40}, {}, 0.9};
    oracle.random.seed(round);
    const std::vector<int> found = Found(oracle, 40, 3);
    const std::set<int> set(found.begin(), found.end());
    exact += set == oracle.guilty;
    for (int part : oracle.guilty) missed += !set.contains(part);
    EXPECT_LE(oracle.questions, 200);
  }
  EXPECT_GE(exact, 198);
  EXPECT_LE(missed, 2);
}

TEST(FindGuiltyTest, NobodyIsBlamedForWhatIsWrongWithoutThem) {
  int questions = 0;
  const auto always = [&](const std::vector<bool>&) -> absl::StatusOr<bool> { return ++questions > 0; };
  EXPECT_EQ(FindGuilty(9, always).status(), absl::FailedPreconditionError("wrong with every part replaced"));
  EXPECT_EQ(questions, 2);
}

TEST(FindGuiltyTest, AnErrorEndsTheSearch) {
  int questions = 0;
  const auto breaks = [&](const std::vector<bool>&) -> absl::StatusOr<bool> {
    if (++questions == 4) return absl::UnavailableError("no worker");
    return questions == 1;
  };
  EXPECT_EQ(FindGuilty(9, breaks).status(), absl::UnavailableError("no worker"));
}

}  // namespace
}  // namespace diapason
