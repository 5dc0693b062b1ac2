#include "scheduler/search/breeding.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler/candidate.h"
#include "tests/scheduler/search/rounds.h"

namespace diapason {
namespace {

class BreedingTest : public ::testing::Test {
 protected:
  const std::unique_ptr<TaskSpace> spaces_ = search_tests::SpacesOf({{"a"}, {"b"}});
  const EvolutionOptions options_{.population = 200};
  const SearchRound round_{*spaces_, options_, 5, 1};
  Population population_{spaces_.get()};

  void Start() {
    for (int i = 0; i < spaces_->size(); ++i) population_.Append(i, spaces_->space(i).Default());
    round_.Evaluate(0, 0, &population_);
  }
  MeasuredCandidate Measured(int space, std::vector<int32_t> configuration, double seconds) {
    const uint64_t hash = CandidateHash(spaces_->space(space).name(), configuration);
    return {space, std::move(configuration), seconds, hash};
  }
};

int Differences(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  int differences = 0;
  for (size_t i = 0; i < a.size(); ++i) differences += a[i] != b[i] ? 1 : 0;
  return differences;
}

TEST_F(BreedingTest, ChildrenAreNewCandidatesOfTheirParentsSpaces) {
  Start();
  const SearchStats stats = AddChildren(round_, 1, &population_);
  EXPECT_EQ(stats.sampled, 200);
  EXPECT_EQ(stats.evaluated, population_.size() - 2);
  EXPECT_GT(stats.evaluated, 20);
  std::set<uint64_t> hashes;
  for (int i = 0; i < population_.size(); ++i) {
    EXPECT_TRUE(hashes.insert(population_.hash(i)).second);
    EXPECT_GT(population_.score(i), 0);
  }
}

TEST_F(BreedingTest, ChildrenOfAGenerationDependOnItsNumberAndNotOnThreads) {
  const auto children = [&](int generation, int threads) {
    EvolutionOptions options = options_;
    options.threads = threads;
    const SearchRound round{*spaces_, options, 5, 1};
    Population population(spaces_.get());
    population.Append(0, spaces_->space(0).Default());
    round.Evaluate(0, 0, &population);
    AddChildren(round, generation, &population);
    std::vector<uint64_t> hashes;
    for (int i = 0; i < population.size(); ++i) hashes.push_back(population.hash(i));
    return hashes;
  };
  EXPECT_EQ(children(1, 1), children(1, 3));
  EXPECT_NE(children(1, 1), children(2, 1));
}

TEST_F(BreedingTest, NothingIsBredOfNothing) {
  EXPECT_EQ(AddChildren(round_, 1, &population_).sampled, 0);
  EXPECT_EQ(AddMutants(round_, 10, Ranking(2), Proposals(2), &population_).sampled, 0);
  EXPECT_EQ(population_.size(), 0);
}

TEST_F(BreedingTest, MutantsAreNeighboursOfMeasuredCandidatesOfEverySpace) {
  Ranking ranking(2);
  const std::vector<int32_t> best(8, 4), other(8, 2);
  for (int i = 0; i < 12; ++i) {
    std::vector<int32_t> near = best;
    near[2] = 1 << (i % 7);
    near[3] = i < 7 ? 4 : 8;
    ranking.Add(Measured(0, near, 1e-4 + i * 1e-7));
  }
  ranking.Add(Measured(1, other, 1.1e-4));
  ranking.Update();
  AddMutants(round_, 40, ranking, Proposals(2), &population_);
  int of_other = 0;
  for (int i = 0; i < population_.size(); ++i) {
    of_other += population_.space(i);
    if (population_.space(i) == 1) {
      EXPECT_LE(Differences(population_.configuration(i), other), 3);
    } else {
      EXPECT_LE(Differences(population_.configuration(i), best), 5);
    }
  }
  EXPECT_GE(population_.size(), 25);
  EXPECT_GE(of_other, 3) << "every second is of a space by itself";
}

TEST_F(BreedingTest, MutantsThatWereProposedAreLeftOut) {
  const std::unique_ptr<TaskSpace> tiny = search_tests::SpacesOf({{"a", 2, 2}});
  const SearchRound round{*tiny, options_, 5, 1};
  Ranking ranking(1);
  Proposals proposals(1);
  for (const std::vector<int32_t>& one : {std::vector<int32_t>{1, 1}, {1, 2}, {2, 1}}) {
    const uint64_t hash = CandidateHash("a", one);
    ranking.Add({0, one, 1e-4, hash});
    proposals.AddMeasured(0, hash);
  }
  ranking.Update();
  Population population(tiny.get());
  AddMutants(round, 8, ranking, proposals, &population);
  ASSERT_EQ(population.size(), 1);
  EXPECT_EQ(population.hash(0), CandidateHash("a", {2, 2}));
}

}  // namespace
}  // namespace diapason
