#include "scheduler/sketch/feature_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

class FeatureNamesTest : public ::testing::TestWithParam<const char*> {
 protected:
  const Target target_ = Target::Parse(GetParam()).value();
  const DeviceFacts facts_ = DefaultFacts(target_);
  const std::vector<std::string> names_ = FeatureNames(target_);

  // Place of a name; fails the test when there is none.
  int At(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    EXPECT_NE(found, names_.end()) << name;
    return static_cast<int>(found - names_.begin());
  }
};

TEST_P(FeatureNamesTest, NamesDiffer) {
  ASSERT_EQ(names_.size(), static_cast<size_t>(kNumFeatures));
  std::set<std::string> seen;
  for (const std::string& name : names_) EXPECT_TRUE(name.empty() || seen.insert(name).second) << name;
}

TEST_P(FeatureNamesTest, ProgramsOfOneKernelHaveNoSecondOne) {
  const auto spaces = TaskSpace::Create(testing::MatMul(64, 48, 32, true), target_, facts_).value();
  int looked = 0;
  for (int i = 0; i < spaces->size(); ++i) {
    Metrics metrics;
    spaces->space(i).Evaluate(spaces->space(i).Default(), &metrics);
    if (metrics.features[At("all: kernels")] != 1) continue;
    EXPECT_EQ(metrics.features[At("all: second over slowest")], 0) << spaces->space(i).name();
    ++looked;
  }
  EXPECT_GT(looked, 0);
}

TEST_P(FeatureNamesTest, NameWhatIsFilledAndNothingElse) {
  std::set<std::string> never_filled(names_.begin(), names_.end());
  for (const ComputeDag& dag :
       {testing::Convolution({}), testing::MatMul(64, 48, 512, true), testing::Depthwise(8, 16, 3)}) {
    const auto spaces = TaskSpace::Create(dag, target_, facts_);
    ASSERT_TRUE(spaces.ok()) << spaces.status();
    for (int i = 0; i < (*spaces)->size(); ++i) {
      const Space& space = (*spaces)->space(i);
      const std::vector<int32_t> configuration = space.Default();
      Metrics metrics;
      space.Evaluate(configuration, &metrics);
      const float* f = metrics.features;
      for (int p = 0; p < kNumFeatures; ++p) {
        EXPECT_TRUE(!names_[p].empty() || f[p] == 0) << "place " << p << " of " << space.name();
        if (f[p] != 0) never_filled.erase(names_[p]);
      }
      for (size_t d = 0; d < configuration.size() && d < kParameterFeatures; ++d) {
        EXPECT_EQ(f[At("parameter " + std::to_string(d))], static_cast<float>(configuration[d]));
      }
      const float nanoseconds = static_cast<float>(std::log2(1 + metrics.seconds * 1e9));
      EXPECT_NEAR(f[At("all: nanoseconds log2")], nanoseconds, 1e-4);
      if (f[At("all: kernels")] == 1) {
        EXPECT_NEAR(f[At("slowest: nanoseconds log2")], nanoseconds, 1e-4);
      }
    }
  }
  EXPECT_FALSE(never_filled.count("slowest: operations log2"));
  EXPECT_FALSE(never_filled.count("second: operations log2"));  // Winograd has several kernels
}

INSTANTIATE_TEST_SUITE_P(Targets, FeatureNamesTest, ::testing::Values("cpu -num-cores=2", "cuda -arch=sm_90"));

}  // namespace
}  // namespace diapason
