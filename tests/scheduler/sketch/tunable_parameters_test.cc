#include "scheduler/sketch/tunable_parameters.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

using Values = std::vector<int32_t>;

TEST(TunableParameters, TilesAreDivisorsAndRoundNumbersUpToALimit) {
  EXPECT_EQ(TileValues(1, 64), Values{1});
  EXPECT_EQ(TileValues(10, 64), (Values{1, 2, 3, 4, 5, 6, 8, 10, 12, 16}));
  EXPECT_EQ(TileValues(14, 7), (Values{1, 2, 3, 4, 6, 7}));
}

// 25 runs of eight rows: a vision transformer's 197.
TEST(TunableParameters, EvenTilesAreAlsoTheLeastOfEachNumberOfTiles) {
  TunableParameters parameters;
  parameters.Tile("usual", 25, 32);
  parameters.EvenTile("even", 25, 32);
  parameters.EvenTile("few", 25, 8);
  EXPECT_EQ(parameters.all()[0].values, (Values{1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 25, 32}));
  EXPECT_EQ(parameters.all()[1].values, (Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 24, 25, 32}));
  EXPECT_EQ(parameters.all()[2].values, (Values{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(TunableParameters, AreNumberedAsTheyAreAddedUnlessThereIsOneValue) {
  TunableParameters parameters;
  EXPECT_EQ(parameters.Tile("a", 8, 4).parameters[0], 0);
  const Factor fixed = parameters.Option("b", {5}, 5);
  EXPECT_TRUE(fixed.is_constant());
  EXPECT_EQ(fixed.value, 5);
  EXPECT_EQ(parameters.Option("c", {0, 16}, 16).parameters[0], 1);
  ASSERT_EQ(parameters.all().size(), 2u);
  EXPECT_EQ(parameters.all()[0].kind, TunableParameter::Kind::kTile);
  EXPECT_EQ(parameters.all()[1].name, "c");
  EXPECT_EQ(parameters.all()[1].kind, TunableParameter::Kind::kOption);
  EXPECT_EQ(parameters.all()[1].preferred, 16);
  EXPECT_TRUE(parameters.status().ok());
}

TEST(TunableParameters, OneWithoutValuesIsAnErrorAndTheFirstIsKept) {
  TunableParameters parameters;
  EXPECT_EQ(parameters.Option("a", {}, 1).value, 1);
  parameters.Option("b", {}, 1);
  EXPECT_EQ(parameters.status(), absl::InvalidArgumentError("parameter a has no value"));
  EXPECT_TRUE(parameters.all().empty());
}

TEST(TunableParameters, APriorIsTheLeastValueThatIsNotBelowWhatIsWanted) {
  TunableParameters parameters;
  const Factor a = parameters.Option("a", {1, 2, 8}, 1);
  const auto prior = [&](int64_t wanted) {
    parameters.Prior(a, wanted);
    return parameters.all()[0].prior;
  };
  EXPECT_EQ(prior(2), 2);
  EXPECT_EQ(prior(3), 8);
  EXPECT_EQ(prior(100), 8);
  parameters.Prior(Factor::Of(3), 1);  // nothing to choose
  parameters.DropPrior();
  EXPECT_EQ(parameters.all()[0].prior, std::nullopt);
}

TEST(TunableParameters, ALeastValueNarrowsDefaultAndPriorToo) {
  TunableParameters parameters;
  const Factor a = parameters.Option("a", {1, 2, 4, 8}, 1);
  parameters.Prior(a, 2);
  parameters.AtLeast(a, 4);
  EXPECT_EQ(parameters.all()[0].values, (Values{4, 8}));
  EXPECT_EQ(parameters.all()[0].preferred, 4);
  EXPECT_EQ(parameters.all()[0].prior, 4);
  parameters.AtLeast(a, 9);
  EXPECT_EQ(parameters.status(), absl::InvalidArgumentError("parameter a has no value of 9"));
  EXPECT_EQ(parameters.all()[0].values, (Values{4, 8}));
}

}  // namespace
}  // namespace diapason
