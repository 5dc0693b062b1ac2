#include "scheduler/variation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

bool InDomains(const Space& space, const std::vector<int32_t>& configuration) {
  std::vector<int32_t> values;
  for (int parameter = 0; parameter < space.size(); ++parameter) {
    space.Domain(parameter, configuration, &values);
    if (std::find(values.begin(), values.end(), configuration[parameter]) == values.end()) return false;
  }
  return true;
}

TEST(Variation, SamplesReachEveryValueOfEachParameter) {
  const FakeSpace space({});
  Random random(1);
  std::vector<int32_t> configuration(space.size()), values;
  std::vector<std::set<int32_t>> seen(space.size());
  for (int i = 0; i < 500; ++i) {
    SampleConfiguration(space, &random, absl::MakeSpan(configuration), &values);
    EXPECT_TRUE(InDomains(space, configuration));
    for (int parameter = 0; parameter < space.size(); ++parameter) seen[parameter].insert(configuration[parameter]);
  }
  for (const auto& of_parameter : seen) EXPECT_EQ(of_parameter.size(), 8u);
}

TEST(Variation, MutationChangesOneParameterAndStaysLegal) {
  const FakeSpace space({});
  Random random(2);
  std::vector<int32_t> configuration(space.size()), values;
  SampleConfiguration(space, &random, absl::MakeSpan(configuration), &values);
  for (int i = 0; i < 500; ++i) {
    const std::vector<int32_t> before = configuration;
    ASSERT_TRUE(Mutate(space, &random, absl::MakeSpan(configuration), &values));
    EXPECT_TRUE(InDomains(space, configuration));
    int changed = 0;
    for (int parameter = 0; parameter < space.size(); ++parameter)
      changed += before[parameter] != configuration[parameter] ? 1 : 0;
    EXPECT_GE(changed, 1);
    EXPECT_LE(changed, 2);  // parameter 1 follows parameter 0 when the product would be too large
  }
}

TEST(Variation, MutationGivesUpWhereNothingCanChange) {
  FakeSpace::Options options;
  options.choices = 1;
  const FakeSpace fixed(options);
  options.parameters = 0;
  const FakeSpace empty(options);
  Random random(3);
  std::vector<int32_t> configuration = fixed.Default(), none, values;
  EXPECT_FALSE(Mutate(fixed, &random, absl::MakeSpan(configuration), &values));
  EXPECT_FALSE(Mutate(empty, &random, absl::MakeSpan(none), &values));
  EXPECT_EQ(configuration, fixed.Default());
}

TEST(Variation, CrossoverTakesParametersOfBothParents) {
  FakeSpace::Options options;
  options.limit = 1 << 20;  // nothing to clamp
  const FakeSpace space(options);
  const std::vector<int32_t> one(space.size(), 2), other(space.size(), 64);
  Random random(4);
  std::set<std::vector<int32_t>> children;
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> child = one;
    Crossover(space, &random, other, absl::MakeSpan(child));
    EXPECT_THAT(child, testing::Each(testing::AnyOf(2, 64)));
    children.insert(child);
  }
  EXPECT_GT(children.size(), 50u);
}

TEST(Variation, CrossoverClampsWhatDoesNotFitTogether) {
  const FakeSpace space({});
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> child(space.size(), 1), other(space.size(), 1);
    child[0] = other[1] = 128;
    Crossover(space, &random, other, absl::MakeSpan(child));
    EXPECT_TRUE(InDomains(space, child));
  }
}

TEST(Variation, EnumerationIsCompleteOrRefused) {
  FakeSpace::Options options;
  options.parameters = 3;
  options.choices = 4;
  options.limit = 8;  // 10 of the 16 pairs
  const FakeSpace space(options);
  std::vector<int32_t> all;
  ASSERT_TRUE(Enumerate(space, 40, &all));
  EXPECT_EQ(all.size(), 40u * 3);
  std::set<std::vector<int32_t>> different;
  for (size_t i = 0; i < all.size(); i += 3) different.insert({all.begin() + i, all.begin() + i + 3});
  EXPECT_EQ(different.size(), 40u);
  EXPECT_FALSE(Enumerate(space, 39, &all));
}

TEST(Variation, ASpaceWithoutParametersHasOneCandidate) {
  FakeSpace::Options options;
  options.parameters = 0;
  std::vector<int32_t> all;
  EXPECT_TRUE(Enumerate(FakeSpace(options), 1, &all));
  EXPECT_TRUE(all.empty());
}

}  // namespace
}  // namespace diapason
