#include "scheduler/objective.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

// Two networks that share task 1.
const std::vector<std::vector<NetworkWeight>> kWeights = {{{"a", 2}}, {{"a", 1}, {"b", 3}}, {{"b", 1}}};

TEST(Objective, SumsWeightedTimes) {
  const Objective sum = Objective::Parse("sum", kWeights).value();
  EXPECT_DOUBLE_EQ(sum.Value({1, 10, 100}), 2 * 1 + 4 * 10 + 100);
  EXPECT_DOUBLE_EQ(sum.Slope(0, {1, 10, 100}), 2);
  EXPECT_DOUBLE_EQ(sum.Slope(1, {1, 10, 100}), 4);
  EXPECT_DOUBLE_EQ(sum.Slope(2, {1, 10, 100}), 1);
}

TEST(Objective, ANetworkAtItsTargetGainsNothing) {
  const Objective targets = Objective::Parse("targets:a=15s", kWeights).value();
  // Network a takes 12 seconds and b 130.
  EXPECT_DOUBLE_EQ(targets.Value({1, 10, 100}), 15 + 130);
  EXPECT_DOUBLE_EQ(targets.Slope(0, {1, 10, 100}), 0);
  EXPECT_DOUBLE_EQ(targets.Slope(1, {1, 10, 100}), 3);
  // 22 seconds: above the target.
  EXPECT_DOUBLE_EQ(targets.Slope(0, {6, 10, 100}), 2);
}

// Task 0 once; then either task 1 twice, which is usual, or task 2 and task 3.
const std::vector<std::vector<NetworkWeight>> kChoiceWeights = {{{"a", 1}}, {{"a", 2}}, {{"a", 0}}, {{"a", 0}}};
const std::vector<NetworkChoice> kChoice = {{"a", {{{1, 2}}, {{2, 1}, {3, 1}}}}};

TEST(Objective, CountsTheWayOfLeastTime) {
  const Objective sum = Objective::Parse("sum", kChoiceWeights, kChoice).value();
  EXPECT_DOUBLE_EQ(sum.Value({1, 10, 8, 5}), 1 + 13);
  EXPECT_EQ(sum.BestAlternatives({1, 10, 8, 5}), std::vector<int>{1});
  EXPECT_DOUBLE_EQ(sum.Weight(1, {1, 10, 8, 5}), 0);
  EXPECT_DOUBLE_EQ(sum.Weight(2, {1, 10, 8, 5}), 1);
  EXPECT_DOUBLE_EQ(sum.Value({1, 10, 8, 0}), 1 + 20) << "a alternative without a time for each task does not count";
  EXPECT_DOUBLE_EQ(sum.Value({1, 10, 15, 4.9}), 1 + 20) << "hardly faster is not worth another alternative";
  EXPECT_FALSE(sum.IsOptional(0) || sum.IsOptional(1));
  EXPECT_TRUE(sum.IsOptional(2) && sum.IsOptional(3));
}

TEST(Objective, GainsNothingByAWayThatIsClearlyBehind) {
  const Objective sum = Objective::Parse("sum", kChoiceWeights, kChoice).value();
  EXPECT_DOUBLE_EQ(sum.Slope(1, {1, 10, 15, 8}), 2);
  EXPECT_DOUBLE_EQ(sum.Slope(2, {1, 10, 15, 8}), 1) << "23 against 20 may still win";
  EXPECT_DOUBLE_EQ(sum.Slope(2, {1, 10, 15, 11}), 0) << "26 may not";
  EXPECT_DOUBLE_EQ(sum.Slope(1, {1, 10, 8, 5}), 0) << "nor may the default fusion with 20 against 13";
  EXPECT_DOUBLE_EQ(sum.Slope(0, {1, 10, 8, 5}), 1);
}

TEST(Objective, ReadsUnits) {
  const Objective targets = Objective::Parse("targets:a=5ms,b=800us", kWeights).value();
  EXPECT_DOUBLE_EQ(targets.Value({0, 0, 0}), 5.8e-3);
}

TEST(Objective, RefusesWhatItDoesNotUnderstand) {
  const auto message = [](const std::string& text) {
    return std::string(Objective::Parse(text, kWeights).status().message());
  };
  const std::string fix = ": write sum, or targets:NETWORK=TIME,... as in targets:resnet-18=5ms";
  EXPECT_EQ(message("latency"), "the objective 'latency' is not known" + fix);
  EXPECT_EQ(message("targets:a"), "the objective 'targets:a' has 'a' where NETWORK=TIME belongs" + fix);
  EXPECT_EQ(message("targets:a=5"), "the objective 'targets:a=5' has '5', which is no time in s, ms or us" + fix);
  EXPECT_EQ(message("targets:a=-5ms"),
            "the objective 'targets:a=-5ms' has '-5ms', which is no time in s, ms or us" + fix);
  EXPECT_EQ(message("targets:c=5ms"),
            "the objective 'targets:c=5ms' names the network 'c', but this run tunes a, b" + fix);
}

}  // namespace
}  // namespace diapason
