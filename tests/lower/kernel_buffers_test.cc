#include "compiler/lower/kernel_buffers.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 3: x, p = x + 1, y of the sums of p's rows, z = y + x's first column.
ComputeDag TwoKernels() {
  DagBuilder b;
  const int x = b.Placeholder("x", {8, 32});
  const int p = b.Compute("p", {8, 32}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int y = b.Reduce("y", {8}, {32}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(p, {i[0], r[0]}); });
  const int z = b.Compute("z", {8}, [&](auto& i) { return Add(b.At(y, i), b.At(x, {i[0], IntImm(0)})); });
  return b.Build({z}).value();
}

std::vector<Step> WithSharedTerms() {
  return {testing::AnnotateStep(2, 0, Annotation::kBlockX), testing::ComputeAtStep(1, 2, 0),
          testing::MemoryStep(1, Memory::kShared)};
}

TEST(KernelBuffers, StagesInsideAKernelAreAllocatedInIt) {
  testing::TestKernel test(TwoKernels(), WithSharedTerms(), 2, "cuda -arch=sm_80");
  const Stmt body = test.nest().buffers.WithAllocations(MakeBarrier());
  EXPECT_EQ(ToString(body), "shared float32 p_[32]\nbarrier\n");
  EXPECT_EQ(SharedBytesOf(body), 32 * 4);
}

TEST(KernelBuffers, IdsGoOnAndWhatIsDeclaredIsAllocatedOnce) {
  testing::TestKernel test(TwoKernels(), {}, 2);
  KernelBuffers& buffers = test.nest().buffers;
  const int first = buffers.NewId(), second = buffers.NewId();
  EXPECT_EQ(first, 4) << "behind those of the stages";
  EXPECT_EQ(second, 5);
  for (int id : {first, second}) buffers.Declare({id, "t" + std::to_string(id), DType::kFloat32, Scope::kLocal, 1});
  const Stmt barrier = MakeBarrier(), body = buffers.WithAllocations(barrier);
  ASSERT_EQ(body->kind, StmtKind::kAlloc);
  EXPECT_EQ(body->decl.id, first);
  EXPECT_EQ(body->body[0]->decl.id, second);
  EXPECT_EQ(buffers.WithAllocations(barrier), barrier);
}

TEST(KernelBuffers, ParametersAreWhatIsReadAndTheRoot) {
  testing::TestKernel sums(TwoKernels(), WithSharedTerms(), 2, "cuda -arch=sm_80");
  std::vector<BufferDecl> parameters = ParametersOf(sums.kernel());
  ASSERT_EQ(parameters.size(), 2);  // p is no buffer outside
  EXPECT_EQ(parameters[0].name, "x");
  EXPECT_FALSE(parameters[0].written);
  EXPECT_EQ(parameters[1].name, "y");
  EXPECT_TRUE(parameters[1].written);

  testing::TestKernel placed(TwoKernels(), WithSharedTerms(), 3, "cuda -arch=sm_80",
                             {.row = 8, .stride = 8, .offset = 16, .elements = 40});
  parameters = ParametersOf(placed.kernel());
  ASSERT_EQ(parameters.size(), 3);
  EXPECT_EQ(parameters[2].elements, 40) << "of the larger tensor";
}

TEST(KernelBuffers, BuffersInThePlaceOfOthersTakeNoMoreMemory) {
  const auto shared = [](int id, int64_t elements) {
    return BufferDecl{id, "s" + std::to_string(id), DType::kFloat32, Scope::kShared, elements};
  };
  BufferDecl overlay = shared(3, 100), apart = shared(4, 1);
  overlay.overlay = true;
  apart.apart = true;
  Stmt body = MakeAlloc(shared(1, 5), MakeAlloc(shared(2, 8), MakeBarrier()));
  EXPECT_EQ(SharedBytesOf(body), 32 + 32) << "each rounded up to 16 bytes";
  body = MakeAlloc(overlay, MakeAlloc(apart, body));
  EXPECT_EQ(SharedBytesOf(body), 400 + 16);
}

}  // namespace
}  // namespace diapason
