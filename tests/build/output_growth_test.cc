#include "compiler/build/output_growth.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace diapason {

bool operator==(const PortGrowth& a, const PortGrowth& b) {
  return a.symbol == b.symbol && a.axis == b.axis && a.block == b.block;
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

PackageManifest PlanOf(SymbolSizes sizes, std::vector<int64_t> shape, std::vector<PortGrowth> grows = {}) {
  PackageManifest plan;
  plan.sizes = std::move(sizes);
  PackagePort& port = plan.outputs.emplace_back();
  port.shape = std::move(shape);
  port.grows = std::move(grows);
  return plan;
}

TEST(OutputGrowth, AnyPlanMaySayIt) {
  const std::vector<PortGrowth> grows = {{"batch", 0, 1}};
  EXPECT_THAT(GrowthOfOutput({PlanOf({{"batch", 4}}, {4, 3}, grows)}, 0), ElementsAre(PortGrowth{"batch", 0, 1}));
  EXPECT_THAT(GrowthOfOutput({PlanOf({{"batch", 1}}, {1, 3}), PlanOf({{"batch", 4}}, {4, 3}, grows)}, 0),
              ElementsAre(PortGrowth{"batch", 0, 1}));
}

TEST(OutputGrowth, ExtentsOfSeveralPlansShowIt) {
  EXPECT_THAT(
      GrowthOfOutput({PlanOf({{"batch", 1}, {"seq", 8}}, {1, 16, 3}), PlanOf({{"batch", 1}, {"seq", 32}}, {1, 64, 3}),
                      PlanOf({{"batch", 4}, {"seq", 8}}, {4, 16, 3}), PlanOf({{"batch", 4}, {"seq", 32}}, {4, 64, 3})},
                     0),
      ElementsAre(PortGrowth{"batch", 0, 1}, PortGrowth{"seq", 1, 2}));
}

TEST(OutputGrowth, WhatIsNotKnownIsNotSaid) {
  // One plan shows nothing, nor does one size of a symbol.
  EXPECT_THAT(GrowthOfOutput({PlanOf({{"batch", 4}}, {4, 3})}, 0), IsEmpty());
  EXPECT_THAT(
      GrowthOfOutput({PlanOf({{"batch", 2}, {"seq", 4}}, {2, 4}), PlanOf({{"batch", 2}, {"seq", 8}}, {2, 8})}, 0),
      ElementsAre(PortGrowth{"seq", 1, 1}));
  // Not proportional; and two symbols that go together.
  EXPECT_THAT(GrowthOfOutput({PlanOf({{"seq", 4}}, {5}), PlanOf({{"seq", 8}}, {9})}, 0), IsEmpty());
  EXPECT_THAT(GrowthOfOutput({PlanOf({{"a", 2}, {"b", 4}}, {4}), PlanOf({{"a", 4}, {"b", 8}}, {8})}, 0), IsEmpty());
  EXPECT_THAT(GrowthOfOutput({PlanOf({}, {4, 3})}, 0), IsEmpty());
}

TEST(OutputGrowth, WhatAnotherPlanContradictsIsNotSaid) {
  EXPECT_THAT(GrowthOfOutput({PlanOf({{"seq", 1}}, {7}), PlanOf({{"seq", 4}}, {4}, {{"seq", 0, 1}})}, 0), IsEmpty());
}

}  // namespace
}  // namespace diapason
