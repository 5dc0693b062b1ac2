#include "compiler/lower/kernel_context.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 3: x, p = x + 1, y of the sums of p's rows, z = y * 2.
ComputeDag SumsTwice() {
  DagBuilder b;
  const int x = b.Placeholder("x", {8, 32});
  const int p = b.Compute("p", {8, 32}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int y = b.Reduce("y", {8}, {32}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(p, {i[0], r[0]}); });
  const int z = b.Compute("z", {8}, [&](auto& i) { return Mul(b.At(y, i), FloatImm(2)); });
  return b.Build({z}).value();
}

TEST(KernelContext, ThreadsOfAReductionInsideAreThoseOfTheBlock) {
  std::vector<Step> steps{testing::AnnotateStep(3, 0, Annotation::kBlockX), testing::ComputeAtStep(2, 3, 0),
                          testing::AnnotateStep(2, 1, Annotation::kThreadX)};
  testing::TestKernel test(SumsTwice(), steps, 3, "cuda -arch=sm_80");
  EXPECT_EQ(test.kernel().threads, 32);
  EXPECT_EQ(test.kernel().blocks, 8);
  EXPECT_EQ(test.kernel().StagesAt(3, 0), std::vector<int>{2});
  EXPECT_TRUE(test.kernel().ReadsAny(3, {1, 2}));
  EXPECT_FALSE(test.kernel().ReadsAny(3, {1}));
}

TEST(KernelContext, AStageReadsWhatIsReadInsideIt) {
  testing::TestKernel test(SumsTwice(), {testing::ComputeAtStep(2, 3, 0), testing::ComputeAtStep(1, 2, 0)}, 3);
  EXPECT_FALSE(test.kernel().ReadsAny(3, {1}));
  EXPECT_TRUE(test.kernel().ReadsInside(3, 1));
}

TEST(KernelContext, LanesHoldStagesOnCudaAlone) {
  const std::vector<Step> steps{testing::AnnotateStep(3, 0, Annotation::kBlockX), testing::ComputeAtStep(2, 3, 0),
                                testing::MemoryStep(2, Memory::kLanes)};
  for (const auto& [target, held] : {std::pair("cuda -arch=sm_80", true), {"opencl", false}}) {
    testing::TestKernel test(SumsTwice(), steps, 3, target);
    EXPECT_EQ(test.kernel().IsHeldByLanes(2), held) << target;
    EXPECT_FALSE(test.kernel().IsHeldByLanes(3)) << target;
  }
}

}  // namespace
}  // namespace diapason
