#include "scheduler/search/round_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/scheduler/search/rounds.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// Without a ranker: the analytic estimate gives the scores.
class RoundSelectorTest : public ::testing::Test {
 protected:
  RoundSelectorTest() {
    options_.epsilon = 0;
    options_.hopeful = 0;
    options_.floor_measurements = 0;
    origins_.begin_mutants = 1 << 20;
  }

  // Candidates of space 0, the best by the estimate anywhere among them.
  void Fill(int count) {
    for (int i = 0; i < count; ++i)
      population_.Append(0, std::vector<int32_t>{1, 1, 1 << (i % 8), 1 << (i / 8), 1 << (i % 5), 1 << (i % 3)});
    round_.Evaluate(0, 0, &population_);
    ASSERT_EQ(population_.size(), count);
  }
  std::vector<int> Select(int count) {
    origins_.begin_mutants = std::min(origins_.begin_mutants, population_.size());
    return RoundSelector(round_, population_, origins_, proposals_).Select(count);
  }
  std::vector<int> ByScore() const {
    std::vector<int> all(population_.size());
    for (int i = 0; i < population_.size(); ++i) all[i] = i;
    std::sort(all.begin(), all.end(), [&](int a, int b) {
      return std::make_pair(-population_.score(a), population_.hash(a)) <
             std::make_pair(-population_.score(b), population_.hash(b));
    });
    return all;
  }

  const std::unique_ptr<TaskSpace> spaces_ = search_tests::SpacesOf({{"a", 6}, {"b", 6, 8, 9e-4}});
  EvolutionOptions options_;
  const SearchRound round_{*spaces_, options_, 5, 1};
  Population population_{spaces_.get()};
  Proposals proposals_{2};
  PopulationOrigins origins_;
};

TEST_F(RoundSelectorTest, TakesTheBestByScoreThatWereNeverProposed) {
  Fill(16);
  const std::vector<int> best = ByScore();
  proposals_.AddProposed(0, population_.hash(best[1]));
  EXPECT_THAT(Select(3), ElementsAre(best[0], best[2], best[3]));
  EXPECT_EQ(Select(100).size(), 15u) << "all that are left";
}

TEST_F(RoundSelectorTest, PriorsAndSuggestionsComeFirstAndTakeHalf) {
  Fill(16);
  const std::vector<int> best = ByScore();
  origins_.end_priors = 1;
  for (int i : {9, 10, 11, 12}) origins_.suggested.insert(population_.hash(i));
  const std::vector<int> selected = Select(6);
  ASSERT_EQ(selected.size(), 6u);
  EXPECT_THAT(std::vector<int>(selected.begin(), selected.begin() + 3), ElementsAre(0, 9, 10));
}

TEST_F(RoundSelectorTest, ASpaceThatWasHardlyMeasuredHasAClaim) {
  Fill(16);
  population_.Append(1, std::vector<int32_t>{1, 1, 1, 1, 1, 1});
  round_.Evaluate(16, 1, &population_);
  options_.floor_measurements = 1;
  proposals_.AddKnown(1);
  proposals_.AddMeasured(0, 2);
  EXPECT_EQ(Select(6).front(), 16);
  proposals_.AddMeasured(1, 3);
  EXPECT_THAT(Select(6), ::testing::Not(::testing::Contains(16)));
}

TEST_F(RoundSelectorTest, MutantsHavePlacesWhateverTheirScore) {
  Fill(16);
  const std::vector<int> best = ByScore();
  origins_.begin_mutants = 14;
  const std::vector<int> selected = Select(4);
  EXPECT_THAT(std::vector<int>(selected.begin(), selected.begin() + 2), ElementsAre(14, 15));
}

TEST_F(RoundSelectorTest, NearIdenticalOnesComeLast) {
  for (int i = 0; i < 7; ++i) population_.Append(0, std::vector<int32_t>{1, 1, 1 << i, 1, 1, 1});
  population_.Append(0, std::vector<int32_t>{64, 1, 64, 64, 64, 64});
  round_.Evaluate(0, 0, &population_);
  const std::vector<int> best = ByScore();
  ASSERT_EQ(best.back(), 7);
  EXPECT_THAT(Select(4), UnorderedElementsAre(best[0], best[1], best[2], 7));
}

TEST_F(RoundSelectorTest, HopeGoesToASpaceThatIsNearAndHasFewTrials) {
  const std::unique_ptr<TaskSpace> near = search_tests::SpacesOf({{"a", 6}, {"b", 6, 8, 1.2e-4}});
  const SearchRound round{*near, options_, 5, 1};
  Population population(near.get());
  for (int space : {0, 1})
    for (int i = 0; i < 16; ++i)
      population.Append(space, std::vector<int32_t>{1 << (i % 3), 1, 1 << (i % 8), 1, 1 << (i / 4), 1 << (i % 7)});
  round.Evaluate(0, 0, &population);
  const auto of_second = [&](double hopeful, int trials) {
    options_.hopeful = hopeful;
    Proposals proposals(2);
    for (int i = 1; i <= 1000; ++i) proposals.AddMeasured(i <= trials ? 1 : 0, static_cast<uint64_t>(i));
    int count = 0;
    for (int i : RoundSelector(round, population, origins_, proposals).Select(8)) count += population.space(i);
    return count;
  };
  EXPECT_GT(of_second(1, 1), of_second(0, 1));
  EXPECT_GT(of_second(1, 1), of_second(1, 500));
}

TEST_F(RoundSelectorTest, RandomPlacesGoToTheFirstGeneration) {
  Fill(32);
  options_.epsilon = 1;
  origins_.end_first_generation = 8;
  const std::vector<int> selected = Select(8);
  EXPECT_THAT(selected, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(Select(8), selected) << "the same round draws the same";
}

// Kernels of seconds hold up the device.
TEST_F(RoundSelectorTest, NothingIsDrawnThatIsHopelesslySlow) {
  const std::unique_ptr<TaskSpace> spaces = search_tests::SpacesOf({{"a", 6}, {"slow", 6, 8, 1.0}});
  const SearchRound round{*spaces, options_, 5, 1};
  Population population(spaces.get());
  for (int i = 0; i < 8; ++i) population.Append(i % 2, std::vector<int32_t>{1, 1, 1 << (i / 2), 1, 1, 1});
  round.Evaluate(0, 0, &population);
  options_.epsilon = 1;
  origins_.end_first_generation = origins_.begin_mutants = 8;
  EXPECT_THAT(RoundSelector(round, population, origins_, proposals_).Select(4), UnorderedElementsAre(0, 2, 4, 6));
  EXPECT_EQ(RoundSelector(round, population, origins_, proposals_).Select(8).size(), 8u) << "if nothing else is left";
}

}  // namespace
}  // namespace diapason
