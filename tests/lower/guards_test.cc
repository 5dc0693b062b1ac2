#include "compiler/lower/guards.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 4: x, w, copies p and q of these, y of the products of the copies.
ComputeDag CopiedProducts(int64_t k) {
  DagBuilder b;
  const int x = b.Placeholder("x", {6, k}), w = b.Placeholder("w", {k, 4});
  const int p = b.Compute("p", {6, k}, [&](auto& i) { return b.At(x, i); });
  const int q = b.Compute("q", {k, 4}, [&](auto& i) { return b.At(w, i); });
  const int y = b.Reduce("y", {6, 4}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(p, {i[0], r[0]}), b.At(q, {r[0], i[1]}));
  });
  return b.Build({y}).value();
}

TEST(Guards, TilesBeyondALoopAreGuardedByWhatTheyGoOver) {
  testing::TestKernel test(CopiedProducts(5), {testing::SplitStep(4, 0, {4}), testing::SplitStep(4, 2, {2})}, 4);
  const StageValues& y = test.Prepared(4);
  const Guards guards = GuardsOf(test.nest(), 4);
  ASSERT_EQ(guards.spatial.size(), 1);  // 6 rows in tiles of 4; columns are whole
  EXPECT_EQ(testing::NumberAt(guards.spatial[0], {{y.leaf[0], 1}, {y.leaf[1], 1}}), 1);
  EXPECT_EQ(testing::NumberAt(guards.spatial[0], {{y.leaf[0], 1}, {y.leaf[1], 2}}), 0);
  ASSERT_EQ(guards.reduce.size(), 1);  // 5 terms in pieces of 2
  EXPECT_TRUE(guards.domain.empty());
}

TEST(Guards, TermsBeyondCopiesAddNothing) {
  const std::vector<Step> at_memory{testing::SplitStep(4, 2, {2})};
  testing::TestKernel plain(CopiedProducts(5), at_memory, 4);
  EXPECT_FALSE(PaddingIsHarmless(plain.kernel(), 4));
  std::vector<Step> at_copies = at_memory;
  for (int copy : {2, 3}) at_copies.push_back(testing::ComputeAtStep(copy, 4, 3));
  testing::TestKernel copied(CopiedProducts(5), at_copies, 4);
  EXPECT_TRUE(PaddingIsHarmless(copied.kernel(), 4));
  copied.Prepared(4);
  copied.Prepared(2);
  EXPECT_FALSE(GuardsOf(copied.nest(), 2).domain.empty()) << "a copy is zero beyond the tensor";
}

}  // namespace
}  // namespace diapason
