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

TEST(Objective, ReadsUnits) {
  const Objective targets = Objective::Parse("targets:a=5ms,b=800us", kWeights).value();
  EXPECT_DOUBLE_EQ(targets.Value({0, 0, 0}), 5.8e-3);
}

TEST(Objective, RefusesWhatItDoesNotUnderstand) {
  const auto message = [](const std::string& text) {
    return std::string(Objective::Parse(text, kWeights).status().message());
  };
  const std::string mend = ": write sum, or targets:NETWORK=TIME,... as in targets:resnet-18=5ms";
  EXPECT_EQ(message("latency"), "the objective 'latency' is not known" + mend);
  EXPECT_EQ(message("targets:a"), "the objective 'targets:a' has 'a' where NETWORK=TIME belongs" + mend);
  EXPECT_EQ(message("targets:a=5"), "the objective 'targets:a=5' has '5', which is no time in s, ms or us" + mend);
  EXPECT_EQ(message("targets:a=-5ms"),
            "the objective 'targets:a=-5ms' has '-5ms', which is no time in s, ms or us" + mend);
  EXPECT_EQ(message("targets:c=5ms"),
            "the objective 'targets:c=5ms' names the network 'c', but this run tunes a, b" + mend);
}

}  // namespace
}  // namespace diapason
