#include "service/target.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "compiler/tensor/device_facts.h"

namespace diapason {
namespace {

TEST(PreferredFusionTest, BoundsOfFactorsWhereTheyAreUsed) {
  const auto bounds = [](const char* target) {
    return PreferredFusion(Target::Parse(target).value()).find_factor_bounds;
  };
  EXPECT_TRUE(bounds("cuda -arch=sm_90"));
  EXPECT_TRUE(bounds("cuda -arch=sm_80"));
  EXPECT_TRUE(bounds("cuda -arch=sm_120 -caches=warm"));
  EXPECT_FALSE(bounds("cuda -arch=sm_90 -strict-fp32"));
  EXPECT_FALSE(bounds("cuda -arch=sm_75"));
  EXPECT_FALSE(bounds("opencl"));
  EXPECT_FALSE(bounds("cpu"));
}

TEST(PreferredFusionTest, NormsOfFewRowsAreDeferredOrWhatTheTargetSays) {
  for (const bool resolved : {false, true}) {
    const auto rows = [resolved](const char* text) {
      const Target target = Target::Parse(text).value();
      return (resolved ? PreferredFusion(ResolveWith(target, DefaultFacts(target))) : PreferredFusion(target))
          .deferred_norm_rows;
    };
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(rows("cuda -arch=sm_90"), 512);
    EXPECT_EQ(rows("cuda -arch=sm_90 -norms=deferred"), kAll);
    EXPECT_EQ(rows("cuda -arch=sm_90 -norms=apart"), 0);
    EXPECT_EQ(rows("cuda -arch=sm_80"), 0);
    EXPECT_EQ(rows("cuda -arch=sm_80 -norms=deferred -strict-fp32"), kAll);
    EXPECT_EQ(rows("cuda -arch=sm_75 -norms=deferred"), 0);
    EXPECT_EQ(rows("opencl"), 0);
    EXPECT_EQ(rows("cpu"), 0);
  }
}

// Tasks are the same wherever the network has them, and so are their records.
TEST(ResolvedTargetTest, WhereNormsAreIsNoPartOfWhatRecordsAreKeptUnder) {
  const Target target = Target::Parse("cuda -arch=sm_90 -norms=apart").value();
  const ResolvedTarget resolved = ResolveWith(target, DefaultFacts(target));
  EXPECT_EQ(resolved.target.ToString(), "cuda -arch=sm_90");
  EXPECT_EQ(resolved.norms, Norms::kApart);
}

// A worker's device has all its cores; a job for some of them is scheduled for these, as on the worker's own host.
TEST(ResolvedTargetTest, FactsAreThoseOfTheCoresThatTheTargetNames) {
  DeviceFacts facts = DefaultFacts(Target::Parse("cpu").value());
  facts.num_cores = 8;
  facts.flops = 8e11;
  facts.l2_bandwidth = 8e10;
  facts.bandwidth = 2 * BandwidthOfCores(2);
  const ResolvedTarget some = ResolveWith(Target::Parse("cpu -num-cores=2").value(), facts);
  EXPECT_EQ(some.facts.num_cores, 2);
  EXPECT_DOUBLE_EQ(some.facts.flops, 2e11);
  EXPECT_DOUBLE_EQ(some.facts.l2_bandwidth, 2e10);
  EXPECT_DOUBLE_EQ(some.facts.bandwidth, BandwidthOfCores(2));
  const ResolvedTarget all = ResolveWith(Target::Parse("cpu").value(), facts);
  EXPECT_EQ(all.target.num_cores, 8);
  EXPECT_DOUBLE_EQ(all.facts.flops, 8e11);
  EXPECT_DOUBLE_EQ(all.facts.bandwidth, 2 * BandwidthOfCores(2));
}

}  // namespace
}  // namespace diapason
