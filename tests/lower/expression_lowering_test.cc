#include "compiler/lower/expression_lowering.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// y[i] = body of x, of eight elements. Stages 0 and 1.
ComputeDag OfNeighbours(int64_t elements, const std::function<Expr(DagBuilder&, int x, const Expr& i)>& body) {
  DagBuilder b;
  const int x = b.Placeholder("x", {8});
  const int y = b.Compute("y", {elements}, [&](auto& i) { return body(b, x, i[0]); });
  return b.Build({y}).value();
}
constexpr int kOut = 1;

struct LoweredBody {
  Expr value;
  bool unsafe = false;
};

LoweredBody LowerBody(testing::TestKernel* test) {
  LoweredBody lowered;
  test->Prepared(kOut);
  const Expr& body = test->kernel().state.stage(kOut).op.body;
  lowered.value = test->parts().expressions.Lower(kOut, body, &lowered.unsafe);
  return lowered;
}

TEST(ExpressionLowering, ReadsThatLoopsKeepInsideAreSafe) {
  testing::TestKernel test(OfNeighbours(8, [](auto& b, int x, auto& i) { return b.At(x, {i}); }), {}, kOut);
  const LoweredBody lowered = LowerBody(&test);
  EXPECT_FALSE(lowered.unsafe);
  EXPECT_EQ(ToString(lowered.value), "T0[" + test.nest().stages[kOut].leaf[0]->name + "]");
}

TEST(ExpressionLowering, ATileBeyondTheTensorReadsBeyondIt) {
  const ComputeDag dag = OfNeighbours(8, [](auto& b, int x, auto& i) { return b.At(x, {i}); });
  testing::TestKernel test(dag, {testing::SplitStep(kOut, 0, {3})}, kOut);
  EXPECT_TRUE(LowerBody(&test).unsafe);
}

TEST(ExpressionLowering, ABranchMakesItsReadsSafe) {
  // Zeros around: the condition says that the element is there, in both directions.
  const auto padded = [](DagBuilder& b, int x, const Expr& i) {
    const Expr inside = And(Le(IntImm(1), i), Lt(i, IntImm(9)));
    return Select(inside, b.At(x, {Sub(i, IntImm(1))}), FloatImm(0));
  };
  testing::TestKernel guarded(OfNeighbours(10, padded), {}, kOut);
  EXPECT_FALSE(LowerBody(&guarded).unsafe);
  const auto one_sided = [](DagBuilder& b, int x, const Expr& i) {
    return Select(Le(IntImm(1), i), b.At(x, {Sub(i, IntImm(1))}), FloatImm(0));
  };
  testing::TestKernel open(OfNeighbours(10, one_sided), {}, kOut);
  EXPECT_TRUE(LowerBody(&open).unsafe);
}

TEST(ExpressionLowering, AnElementIsStoredWhereItLies) {
  const ComputeDag dag = OfNeighbours(8, [](auto& b, int x, auto& i) { return b.At(x, {i}); });
  testing::TestKernel test(dag, {testing::SplitStep(kOut, 0, {4})}, kOut);
  const StageValues& y = test.Prepared(kOut);
  EXPECT_EQ(testing::NumberAt(test.parts().expressions.StoreIndex(kOut), {{y.leaf[0], 1}, {y.leaf[1], 2}}), 6);
}

}  // namespace
}  // namespace diapason
