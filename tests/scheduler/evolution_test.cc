#include "scheduler/evolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "scheduler/variation.h"
#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

std::unique_ptr<TaskSpace> SpaceOf(const std::vector<FakeSpace::Options>& options) {
  std::vector<std::unique_ptr<Space>> spaces;
  for (const auto& one : options) spaces.push_back(std::make_unique<FakeSpace>(one));
  return std::make_unique<TaskSpace>(FakeDag(8), std::move(spaces));
}

const FakeSpace& Fake(const TaskSpace& space, int i) { return static_cast<const FakeSpace&>(space.space(i)); }

FakeSpace::Options Named(const std::string& name, int parameters = 8, int choices = 8) {
  FakeSpace::Options options;
  options.name = name;
  options.parameters = parameters;
  options.choices = choices;
  return options;
}

EvolutionOptions Small(uint64_t seed = 1) {
  EvolutionOptions options;
  options.seed = seed;
  options.population = 256;
  return options;
}

// Searches and "measures" `rounds` rounds of k; the times in order.
std::vector<double> Search(const TaskSpace& space, const EvolutionOptions& options, int rounds, int k,
                           bool with_model) {
  TaskSearch search(&space, 5, options);
  XgbOptions xgb;
  xgb.num_features = kNumFeatures;
  XgbCostModel model(xgb);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Sample> samples;
    for (const Candidate& candidate : search.NextRound(with_model ? model.Current().get() : nullptr, k)) {
      const double seconds = Fake(space, candidate.space).Seconds(candidate.configuration);
      times.push_back(seconds);
      search.AddMeasured(candidate.space, candidate.configuration, seconds);
      Metrics metrics;
      space.space(candidate.space).Evaluate(candidate.configuration, &metrics);
      samples.push_back(
          {5, candidate.hash, {metrics.features, metrics.features + kNumFeatures}, metrics.seconds, seconds});
    }
    model.AddSamples(std::move(samples));
    model.Train();
    model.Wait();
  }
  return times;
}

double Best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

double RandomBest(const FakeSpace& space, int trials, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> configuration(space.size()), values;
  double best = 1e9;
  for (int i = 0; i < trials; ++i) {
    SampleConfiguration(space, &random, absl::MakeSpan(configuration), &values);
    best = std::min(best, space.Seconds(configuration));
  }
  return best;
}

// Of several spaces, how much slower than the best candidate the best found one is (1: twice as slow), on average.
double Regret(const std::function<double(const TaskSpace& space, uint64_t seed)>& search) {
  double regret = 0;
  constexpr int kSpaces = 8;
  for (uint64_t seed = 0; seed < kSpaces; ++seed) {
    FakeSpace::Options options = Named("a", 10);
    options.seed = 100 + seed;
    const auto space = SpaceOf({options});
    regret += (search(*space, seed) / Fake(*space, 0).BestSeconds() - 1) / kSpaces;
  }
  return regret;
}

TEST(Evolution, SuggestionsAreMeasuredOnceAndTakeHalfOfARoundAtMost) {
  const auto space = SpaceOf({Named("a", 10), Named("b", 4)});
  TaskSearch search(space.get(), 5, Small());
  std::vector<Suggestion> suggested = {{1, {2, 2, 64, 64}}};
  for (int32_t value : {2, 4, 8, 16, 32, 64, 128})
    suggested.push_back({0, {1, value, 128, 1, 1, 128, 1, 128, 1, value}});
  const auto suggestions_in = [&](const std::vector<Candidate>& round) {
    std::vector<std::vector<int32_t>> found;
    for (const Candidate& candidate : round)
      for (const Suggestion& one : suggested)
        if (one.space == candidate.space && one.configuration == candidate.configuration)
          found.push_back(one.configuration);
    return found;
  };
  const auto in_order = [&](size_t first, size_t last) {
    std::vector<std::vector<int32_t>> some;
    for (size_t i = first; i < last; ++i) some.push_back(suggested[i].configuration);
    return some;
  };
  EXPECT_EQ(suggestions_in(search.NextRound(nullptr, 10, suggested)), in_order(0, 5));
  EXPECT_EQ(suggestions_in(search.NextRound(nullptr, 10, suggested)), in_order(5, 8));
  EXPECT_EQ(suggestions_in(search.NextRound(nullptr, 10, suggested)), in_order(0, 0));
}

TEST(Evolution, FindsFarBetterCandidatesThanRandomSearchWithTheSameTrials) {
  const double found =
      Regret([](const TaskSpace& space, uint64_t seed) { return Best(Search(space, Small(seed), 6, 16, true)); });
  const double by_chance =
      Regret([](const TaskSpace& space, uint64_t seed) { return RandomBest(Fake(space, 0), 96, seed); });
  EXPECT_LT(found, 0.35);
  EXPECT_LT(found, 0.2 * by_chance);
}

TEST(Evolution, TheModelHelpsWhereTheEstimateIsBlind) {
  const double with_model =
      Regret([](const TaskSpace& space, uint64_t seed) { return Best(Search(space, Small(seed), 6, 16, true)); });
  const double without =
      Regret([](const TaskSpace& space, uint64_t seed) { return Best(Search(space, Small(seed), 6, 16, false)); });
  EXPECT_LT(with_model, 0.6 * without);
}

TEST(Evolution, ReproducesItsProposalsFromTheSeed) {
  const auto space = SpaceOf({Named("a"), Named("b")});
  EXPECT_EQ(Search(*space, Small(7), 4, 16, true), Search(*space, Small(7), 4, 16, true));
  EXPECT_NE(Search(*space, Small(7), 4, 16, true), Search(*space, Small(8), 4, 16, true));
  EvolutionOptions threads = Small(7);
  threads.threads = 3;
  EXPECT_EQ(Search(*space, threads, 4, 16, true), Search(*space, Small(7), 4, 16, true));
}

TEST(Evolution, DoesNotDependOnTheOrderOfResults) {
  const auto space = SpaceOf({Named("a")});
  TaskSearch forwards(space.get(), 5, Small()), backwards(space.get(), 5, Small());
  auto round = forwards.NextRound(nullptr, 16);
  backwards.NextRound(nullptr, 16);
  for (const Candidate& c : round) forwards.AddMeasured(0, c.configuration, Fake(*space, 0).Seconds(c.configuration));
  std::reverse(round.begin(), round.end());
  for (const Candidate& c : round) backwards.AddMeasured(0, c.configuration, Fake(*space, 0).Seconds(c.configuration));
  const auto one = forwards.NextRound(nullptr, 16), other = backwards.NextRound(nullptr, 16);
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].hash, other[i].hash);
}

TEST(Evolution, NeverProposesACandidateTwice) {
  const auto space = SpaceOf({Named("a", 4, 4), Named("b", 3, 3)});
  TaskSearch search(space.get(), 5, Small());
  std::set<uint64_t> seen{search.Default().hash};
  for (int round = 0; round < 8; ++round)
    for (const Candidate& candidate : search.NextRound(nullptr, 20)) EXPECT_TRUE(seen.insert(candidate.hash).second);
  EXPECT_EQ(seen.size(), 161u);
}

TEST(Evolution, ExhaustsTinySpacesAndEnds) {
  FakeSpace::Options nothing = Named("c", 0);
  const auto space = SpaceOf({Named("a", 3, 3), Named("b", 1, 2), nothing});
  TaskSearch search(space.get(), 5, Small());
  std::set<uint64_t> seen;
  for (int round = 0; round < 10; ++round)
    for (const Candidate& candidate : search.NextRound(nullptr, 8)) seen.insert(candidate.hash);
  EXPECT_EQ(seen.size(), 27u + 2 + 1);
  EXPECT_TRUE(search.NextRound(nullptr, 8).empty());
}

TEST(Evolution, ExhaustsASpaceThatIsLargerThanThePopulation) {
  const auto space = SpaceOf({Named("a", 5, 4)});  // 1024 less the pairs above the limit
  EvolutionOptions options = Small();
  TaskSearch search(space.get(), 5, options);
  size_t found = 0;
  while (true) {
    const size_t more = search.NextRound(nullptr, 128).size();
    if (more == 0) break;
    found += more;
    ASSERT_LE(found, 1024u);
  }
  EXPECT_EQ(found, 1024u);
}

TEST(Evolution, KeepsEverySpaceAliveAtFirstAndGoesForTheBestAfterwards) {
  std::vector<FakeSpace::Options> options = {Named("slow"), Named("fast"), Named("slower")};
  options[0].scale = 4e-4;
  options[2].scale = 8e-4;
  const auto space = SpaceOf(options);
  TaskSearch search(space.get(), 5, Small());
  std::vector<int> early(3), late(3);
  for (int round = 0; round < 6; ++round) {
    for (const Candidate& candidate : search.NextRound(nullptr, 16)) {
      ++(round < 3 ? early : late)[candidate.space];
      search.AddMeasured(candidate.space, candidate.configuration,
                         Fake(*space, candidate.space).Seconds(candidate.configuration));
    }
  }
  EXPECT_THAT(early, testing::Each(testing::Ge(2)));
  EXPECT_GT(late[1], 40);
}

TEST(Evolution, ASpaceThatMayStillOvertakeGetsTrialsBesideTheLeaderAndAFarOneHardlyAny) {
  std::vector<FakeSpace::Options> spaces = {Named("leads"), Named("near"), Named("far")};
  spaces[1].scale = 1.05e-4;
  spaces[2].scale = 3e-4;
  const auto space = SpaceOf(spaces);
  const auto late = [&](double hopeful) {
    EvolutionOptions options = Small();
    options.hopeful = hopeful;
    TaskSearch search(space.get(), 5, options);
    std::vector<int> trials(3);
    for (int round = 0; round < 12; ++round)
      for (const Candidate& candidate : search.NextRound(nullptr, 16)) {
        if (round >= 4) ++trials[candidate.space];
        search.AddMeasured(candidate.space, candidate.configuration,
                           Fake(*space, candidate.space).Seconds(candidate.configuration));
      }
    return trials;
  };
  const std::vector<int> without = late(0), with = late(0.5);
  EXPECT_GE(with[1], 2 * without[1]);
  EXPECT_GE(with[1], 12) << "of 128";
  EXPECT_GT(with[0], 64);
  EXPECT_LT(with[2], with[1] / 2);
}

TEST(Evolution, ASpaceWhoseEstimateIsTooDarkIsTriedAllTheSame) {
  // The estimate says that `b` is ten times slower; really it is the fastest.
  class Dark : public FakeSpace {
   public:
    using FakeSpace::FakeSpace;
    void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override {
      FakeSpace::Evaluate(configuration, metrics);
      metrics->seconds *= 10;
    }
  };
  std::vector<std::unique_ptr<Space>> spaces;
  spaces.push_back(std::make_unique<FakeSpace>(Named("a")));
  spaces.push_back(std::make_unique<Dark>(Named("b")));
  const TaskSpace space(FakeDag(8), std::move(spaces));
  TaskSearch search(&space, 5, Small());
  int tried = 0;
  for (int round = 0; round < 4; ++round)
    for (const Candidate& candidate : search.NextRound(nullptr, 12)) tried += candidate.space == 1 ? 1 : 0;
  EXPECT_GE(tried, 3);
}

TEST(Evolution, AlwaysFailingSpaceLosesItsShare) {
  const auto space = SpaceOf({Named("fails"), Named("works")});
  TaskSearch search(space.get(), 5, Small());
  int failing = 0, last = 0;
  for (int round = 0; round < 6; ++round) {
    last = 0;
    for (const Candidate& candidate : search.NextRound(nullptr, 16)) {
      failing += candidate.space == 0 ? 1 : 0;
      last += candidate.space == 0 ? 1 : 0;
      search.AddMeasured(candidate.space, candidate.configuration,
                         candidate.space == 0 ? 0 : Fake(*space, 1).Seconds(candidate.configuration));
    }
  }
  EXPECT_GT(failing, 2);
  EXPECT_LT(failing, 60);
}

TEST(Evolution, AllFailingTaskStillProposes) {
  const auto space = SpaceOf({Named("a")});
  TaskSearch search(space.get(), 5, Small());
  for (int round = 0; round < 5; ++round) {
    const auto candidates = search.NextRound(nullptr, 16);
    EXPECT_EQ(candidates.size(), 16u);
    for (const Candidate& candidate : candidates) search.AddMeasured(0, candidate.configuration, 0);
  }
}

TEST(Evolution, LeavesOutIllegalCandidates) {
  class Forbidden : public FakeSpace {
   public:
    using FakeSpace::FakeSpace;
    void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override {
      FakeSpace::Evaluate(configuration, metrics);
      metrics->legal = configuration[2] < 4;
    }
  };
  std::vector<std::unique_ptr<Space>> spaces;
  spaces.push_back(std::make_unique<Forbidden>(Named("a")));
  const TaskSpace space(FakeDag(8), std::move(spaces));
  TaskSearch search(&space, 5, Small());
  const auto round = search.NextRound(nullptr, 32);
  EXPECT_FALSE(round.empty());
  for (const Candidate& candidate : round) EXPECT_LT(candidate.configuration[2], 4);
}

TEST(Evolution, ARoundIsNotAllNeighbours) {
  const auto space = SpaceOf({Named("a")});
  TaskSearch search(space.get(), 5, Small());
  const auto round = search.NextRound(nullptr, 16);
  for (const Candidate& one : round) {
    int neighbours = 0;
    for (const Candidate& other : round) {
      int differ = 0;
      for (size_t i = 0; i < one.configuration.size(); ++i)
        differ += one.configuration[i] != other.configuration[i] ? 1 : 0;
      neighbours += differ == 1 ? 1 : 0;
    }
    EXPECT_LE(neighbours, 8);
  }
}

TEST(Evolution, AReleasedCandidateMayComeBack) {
  const auto space = SpaceOf({Named("a", 2, 2)});
  TaskSearch search(space.get(), 5, Small());
  const auto all = search.NextRound(nullptr, 8);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_TRUE(search.known(all[2].hash));
  search.Release(all[2].hash);
  EXPECT_FALSE(search.known(all[2].hash));
  const auto again = search.NextRound(nullptr, 8);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].configuration, all[2].configuration);
}

TEST(Evolution, KnownHashesAreNotProposed) {
  const auto space = SpaceOf({Named("a", 2, 2)});
  TaskSearch search(space.get(), 5, Small());
  search.AddKnown(CandidateHash("a", {2, 2}));
  EXPECT_EQ(search.NextRound(nullptr, 8).size(), 3u);
}

TEST(Evolution, DefaultIsTheBestOfTheSpacesByTheEstimate) {
  std::vector<FakeSpace::Options> options = {Named("slow"), Named("fast")};
  options[0].scale = 9e-4;
  const auto space = SpaceOf(options);
  TaskSearch search(space.get(), 5, Small());
  const Candidate first = search.Default();
  EXPECT_EQ(first.space, 1);
  EXPECT_EQ(first.configuration, space->space(1).Default());
  EXPECT_TRUE(search.known(first.hash));
}

TEST(Evolution, PriorsComeFirstAndShareARoundWithTheSearch) {
  std::vector<FakeSpace::Options> options = {Named("a"), Named("library/x", 2, 6), Named("library/y", 2, 3)};
  for (int i : {1, 2}) {
    options[i].external = true;
    options[i].scale = 1;  // hopeless by every estimate
  }
  const auto space = SpaceOf(options);
  TaskSearch search(space.get(), 5, Small());
  std::vector<std::string> priors;
  for (int round = 0; round < 3; ++round) {
    int libraries = 0;
    for (const Candidate& candidate : search.NextRound(nullptr, 8)) {
      search.AddMeasured(candidate.space, candidate.configuration, 1e-3);
      if (candidate.space == 0 || candidate.configuration[1] != 1) continue;
      ++libraries;
      priors.push_back(absl::StrCat(space->space(candidate.space).name(), " ", candidate.configuration[0]));
    }
    if (round < 2) {
      EXPECT_EQ(libraries, 4) << round;
    }
  }
  // The first of each library, then the second, ...
  ASSERT_GE(priors.size(), 9u);
  priors.resize(9);
  EXPECT_THAT(priors, testing::ElementsAre("library/x 1", "library/y 1", "library/x 2", "library/y 2", "library/x 4",
                                           "library/y 4", "library/x 8", "library/x 16", "library/x 32"));
}

TEST(Evolution, PriorsThatAreKnownAreNotAskedForAgain) {
  std::vector<FakeSpace::Options> options = {Named("a"), Named("library/x", 2, 4)};
  options[1].external = true;
  options[1].scale = 1;
  const auto space = SpaceOf(options);
  TaskSearch search(space.get(), 5, Small());
  for (int32_t first : {1, 2, 4, 8}) search.AddMeasured(1, {first, 1}, 1e-3);
  for (const Candidate& candidate : search.NextRound(nullptr, 8))
    EXPECT_FALSE(candidate.space == 1 && candidate.configuration[1] == 1);
}

TEST(Evolution, TheDefaultCallsNoLibrary) {
  std::vector<FakeSpace::Options> options = {Named("a"), Named("library/x", 2, 4)};
  options[1].external = true;
  options[1].scale = 1e-9;  // by far the fastest by the estimate
  const auto space = SpaceOf(options);
  EXPECT_EQ(TaskSearch(space.get(), 5, Small()).Default().space, 0);
}

TEST(CandidateHash, TellsSpacesAndConfigurationsApartAndNeverChanges) {
  EXPECT_NE(CandidateHash("a", {1, 2}), CandidateHash("b", {1, 2}));
  EXPECT_NE(CandidateHash("a", {1, 2}), CandidateHash("a", {2, 1}));
  EXPECT_NE(CandidateHash("a", {1}), CandidateHash("a", {1, 0}));
  // Stored in histories.
  EXPECT_EQ(CandidateHash("gemm/tile", {4, 8, 1}), 5987536254539762378u);
}

}  // namespace
}  // namespace diapason
