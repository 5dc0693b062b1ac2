#include "scheduler/lent_search.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

class LentSearchTest : public testing::Test {
 protected:
  static TrialResult ResultOf(const Candidate& candidate, double seconds) {
    TrialResult result;
    result.space = candidate.space;
    result.configuration = candidate.configuration;
    result.hash = candidate.hash;
    result.seconds = seconds;
    return result;
  }
  static TaskSpace OneSpace() {
    std::vector<std::unique_ptr<Space>> spaces;
    spaces.push_back(std::make_unique<FakeSpace>(FakeSpace::Options{}));
    return {FakeDag(8), std::move(spaces)};
  }

  const TaskSpace task_ = OneSpace();
  TrialResults results_;
  LentSearch search_{std::make_unique<TaskSearch>(&task_, 1, EvolutionOptions()), results_};
};

TEST_F(LentSearchTest, LearnsAtOnceWhileItIsHere) {
  search_.AddKnown(42);
  EXPECT_TRUE(search_.get().known(42));
  const Candidate candidate = search_.get().Default();
  search_.Release(candidate.hash);
  EXPECT_FALSE(search_.get().known(candidate.hash));
}

TEST_F(LentSearchTest, WhatComesWhileItIsLentWaitsForItsReturn) {
  const Candidate candidate = search_.get().Default();
  const TaskSearch* const lent = search_.Begin();
  search_.AddKnown(42);
  search_.Release(candidate.hash);
  EXPECT_FALSE(lent->known(42));
  EXPECT_TRUE(lent->known(candidate.hash));
  search_.End();
  EXPECT_TRUE(lent->known(42));
  EXPECT_FALSE(lent->known(candidate.hash));
}

// The second round of a search of this task whose first one was measured, the first candidate by far the fastest, and
// that candidate refuted: before the search learns of it, or never.
TEST_F(LentSearchTest, AResultThatWasRefutedMeanwhileIsLearntAsAFailure) {
  const auto second_round = [this](bool lent, bool refuted) {
    TrialResults results;
    LentSearch search(std::make_unique<TaskSearch>(&task_, 1, EvolutionOptions()), results);
    const std::vector<Candidate> first = search.get().NextRound(nullptr, 32);
    if (lent) search.Begin();
    for (size_t i = 0; i < first.size(); ++i) {
      const int index = results.Add(ResultOf(first[i], i == 0 ? 1e-6 : 1e-3 * static_cast<double>(i)));
      if (lent) search.AddMeasured(index);
    }
    if (refuted) results.SetVerdict(0, false);
    if (lent) search.End();
    for (size_t i = 0; !lent && i < first.size(); ++i) search.AddMeasured(static_cast<int>(i));
    std::vector<uint64_t> hashes;
    for (const Candidate& candidate : search.get().NextRound(nullptr, 32)) hashes.push_back(candidate.hash);
    return hashes;
  };
  EXPECT_EQ(second_round(/*lent=*/true, /*refuted=*/true), second_round(/*lent=*/false, /*refuted=*/true));
  EXPECT_NE(second_round(/*lent=*/true, /*refuted=*/true), second_round(/*lent=*/true, /*refuted=*/false));
}

}  // namespace
}  // namespace diapason
