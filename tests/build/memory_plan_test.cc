#include "compiler/build/memory_plan.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace diapason {
namespace {

void ExpectSound(const std::vector<PlannedTensor>& tensors, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % kArenaAlignment, 0);
    EXPECT_LE(plan.offsets[i] + tensors[i].bytes, plan.bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool together = tensors[i].first <= tensors[j].last && tensors[j].first <= tensors[i].last;
      const bool apart = plan.offsets[i] + tensors[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + tensors[j].bytes <= plan.offsets[i];
      EXPECT_TRUE(!together || apart) << i << " and " << j;
    }
  }
}

TEST(MemoryPlan, AChainNeedsTwoTensors) {
  // Tensor i is written by step i and read by step i + 1.
  std::vector<PlannedTensor> tensors;
  for (int i = 0; i < 10; ++i) tensors.push_back({1024, i, i + 1});
  const MemoryPlan plan = PlanMemory(tensors);
  ExpectSound(tensors, plan);
  EXPECT_EQ(plan.bytes, 2048);
}

TEST(MemoryPlan, AResidualIsKeptUntilItsLastReader) {
  const std::vector<PlannedTensor> tensors = {{1024, 0, 3}, {1024, 1, 2}, {1024, 2, 3}, {1024, 3, 4}};
  const MemoryPlan plan = PlanMemory(tensors);
  ExpectSound(tensors, plan);
  EXPECT_EQ(plan.bytes, 3072);
}

TEST(MemoryPlan, SmallTensorsFillTheSpaceOfLargeOnesThatAreDead) {
  const std::vector<PlannedTensor> tensors = {{512, 2, 3}, {512, 2, 3}, {2048, 0, 1}, {1000, 2, 2}};
  const MemoryPlan plan = PlanMemory(tensors);
  ExpectSound(tensors, plan);
  EXPECT_EQ(plan.bytes, 2048);
}

TEST(MemoryPlan, StepsOfOneDepthDoNotShareMemory) {
  // Scratch of two steps, one after the other, that may run side by side.
  EXPECT_EQ(PlanMemory({{1024, 1, 1, 1, 1}, {1024, 2, 2, 2, 2}}).bytes, 1024);
  EXPECT_EQ(PlanMemory({{1024, 1, 1, 1, 1}, {1024, 2, 2, 1, 1}}).bytes, 2048);
}

TEST(MemoryPlan, NothingAndEmptyTensorsTakeNoMemory) {
  EXPECT_EQ(PlanMemory({}).bytes, 0);
  EXPECT_EQ(PlanMemory({{0, 0, 5}, {0, 1, 1}}).bytes, 0);
}

TEST(MemoryPlan, RandomLifetimesAreKeptApartAndNearTheLowerBound) {
  std::mt19937 random(1);
  double planned = 0, bound = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<PlannedTensor> tensors(1 + random() % 40);
    std::vector<int64_t> live(50, 0);
    for (PlannedTensor& tensor : tensors) {
      tensor.bytes = static_cast<int64_t>(1 + random() % 20) * kArenaAlignment;
      tensor.first = static_cast<int>(random() % 40);
      tensor.last = tensor.first + static_cast<int>(random() % 8);
      for (int t = tensor.first; t <= tensor.last; ++t) live[t] += tensor.bytes;
    }
    const MemoryPlan plan = PlanMemory(tensors);
    ExpectSound(tensors, plan);
    planned += static_cast<double>(plan.bytes);
    bound += static_cast<double>(*std::max_element(live.begin(), live.end()));
  }
  EXPECT_LT(planned, 1.1 * bound);
}

}  // namespace
}  // namespace diapason
