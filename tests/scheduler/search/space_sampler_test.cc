#include "scheduler/search/space_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/fakes.h"
#include "tests/scheduler/search/rounds.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SpaceSamplerTest : public ::testing::Test {
 protected:
  // The first has too many candidates to be listed.
  const std::unique_ptr<TaskSpace> spaces_ = search_tests::SpacesOf({{"large", 8, 8}, {"small", 1, 3}});
  const EvolutionOptions options_{.population = 64};
  SpaceSampler sampler_{spaces_.get(), 100};

  int CountOf(const Population& population, int space) {
    int count = 0;
    for (int i = 0; i < population.size(); ++i) count += population.space(i) == space ? 1 : 0;
    return count;
  }
  Population Round(uint64_t number) {
    Population population(spaces_.get());
    sampler_.AddKept(&population);
    population.Evaluate(0, nullptr, 5, 1);
    sampler_.AddSamples({*spaces_, options_, 5, number}, {0.5, 0.5}, &population);
    return population;
  }
};

TEST_F(SpaceSamplerTest, KeepsSamplesAndListsSpacesThatGiveTheSameAgain) {
  const Population first = Round(1);
  EXPECT_EQ(CountOf(first, 0), 32);
  EXPECT_EQ(CountOf(first, 1), 3);
  SearchMemory memory;
  sampler_.Save(&memory);
  EXPECT_EQ(memory.samples.size(), 35u);
  EXPECT_THAT(memory.listed, ElementsAre("small"));
  EXPECT_THAT(memory.large, IsEmpty());
  // Fewer new ones beside those kept, and none of the listed space.
  const Population second = Round(2);
  EXPECT_EQ(CountOf(second, 0), 32 + 8);
  EXPECT_EQ(CountOf(second, 1), 3);
}

TEST_F(SpaceSamplerTest, KeepsTheLatestUpToItsLimit) {
  for (uint64_t round = 1; round <= 12; ++round) Round(round);
  SearchMemory memory;
  sampler_.Save(&memory);
  ASSERT_EQ(memory.samples.size(), 100u);
  Population next(spaces_.get());
  sampler_.AddSamples({*spaces_, options_, 5, 13}, {0.5, 0.5}, &next);
  SearchMemory later;
  sampler_.Save(&later);
  ASSERT_EQ(later.samples.size(), 100u);
  EXPECT_EQ(later.samples[0], memory.samples[8]);
}

TEST_F(SpaceSamplerTest, ListSmallLeavesOutWhatIsLarge) {
  sampler_.ListSmall();
  SearchMemory memory;
  sampler_.Save(&memory);
  EXPECT_THAT(memory.listed, ElementsAre("small"));
  EXPECT_THAT(memory.large, ElementsAre("large"));
  Population population(spaces_.get());
  sampler_.AddKept(&population);
  EXPECT_EQ(population.size(), 3);
}

TEST_F(SpaceSamplerTest, ARestoredOneDrawsOnAsTheOneThatWasSaved) {
  Round(1);
  SearchMemory memory;
  sampler_.Save(&memory);
  memory.samples.emplace_back("gone", std::vector<int32_t>{1});
  memory.listed.emplace_back("gone");
  SpaceSampler restored(spaces_.get(), 100);
  restored.Restore(memory);
  Population one(spaces_.get()), other(spaces_.get());
  const SearchRound round{*spaces_, options_, 5, 2};
  sampler_.AddKept(&one);
  restored.AddKept(&other);
  sampler_.AddSamples(round, {0.5, 0.5}, &one);
  restored.AddSamples(round, {0.5, 0.5}, &other);
  ASSERT_EQ(one.size(), other.size());
  for (int i = 0; i < one.size(); ++i) EXPECT_EQ(one.hash(i), other.hash(i));
}

}  // namespace
}  // namespace diapason
