#include "compiler/lower/expand_loops.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/lower/count_statements.h"

namespace diapason {
namespace {

constexpr int kFrom = 0, kTo = 1;

Expr From(const Expr& index) { return Load(kFrom, DType::kFloat32, {index}); }

// to[i] = from[i] * (i == 0 ? 2 : 3): the choice is by i.
Stmt Scaled(const Expr& i) {
  const Expr factor = Select(Eq(i, IntImm(0)), FloatImm(2), FloatImm(3));
  return MakeStore(kTo, i, Mul(From(i), factor));
}

bool IsUnrolled(const StmtNode& loop, bool) { return loop.for_kind == ForKind::kUnroll; }

TEST(ExpandLoops, CopiesHaveTheVariableAsAConstant) {
  Analyzer analyzer;
  const Expr i = MakeVar("i");
  const Stmt copies = LoopExpander(analyzer, IsUnrolled).Expand(MakeFor(ForKind::kUnroll, i, 2, Scaled(i)));
  ASSERT_EQ(copies->kind, StmtKind::kSeq) << ToString(copies);
  ASSERT_EQ(copies->body.size(), 2u);
  EXPECT_TRUE(Equal(copies->body[0]->index, IntImm(0)));
  EXPECT_TRUE(Equal(copies->body[0]->value, Mul(From(IntImm(0)), FloatImm(2)))) << ToString(copies);
  EXPECT_TRUE(Equal(copies->body[1]->index, IntImm(1)));
  EXPECT_TRUE(Equal(copies->body[1]->value, Mul(From(IntImm(1)), FloatImm(3)))) << ToString(copies);
}

TEST(ExpandLoops, OtherLoopsStayAndAreSimplified) {
  Analyzer analyzer;
  const Expr i = MakeVar("i");
  const Stmt store = MakeStore(kTo, Add(FloorMod(i, 8), IntImm(0)), From(i));
  const Stmt loop = LoopExpander(analyzer, IsUnrolled).Expand(MakeFor(ForKind::kSerial, i, 8, store, 4));
  ASSERT_EQ(loop->kind, StmtKind::kFor);
  EXPECT_EQ(loop->extent, 8);
  EXPECT_EQ(loop->unroll, 4);
  EXPECT_TRUE(Equal(loop->body[0]->index, i)) << "i is below 8: " << ToString(loop);
}

TEST(ExpandLoops, OnlyLoopsInsideExpandedOnesAreToldThatTheyAre) {
  Analyzer analyzer;
  const Expr i = MakeVar("i"), j = MakeVar("j"), k = MakeVar("k");
  const auto copy = [](const Expr& index) { return MakeStore(kTo, index, From(index)); };
  const Stmt inner = MakeFor(ForKind::kUnroll, j, 3, copy(Add(Mul(i, IntImm(3)), j)));
  const Stmt nest =
      MakeSeq({MakeFor(ForKind::kUnroll, i, 2, MakeSeq({Scaled(i), inner})), MakeFor(ForKind::kUnroll, k, 4, copy(k))});
  const auto choosing = [](const StmtNode& loop, bool inside) { return inside || ChoosesByVariable(loop); };
  const Stmt expanded = LoopExpander(analyzer, choosing).Expand(nest);
  EXPECT_EQ(testing::CountStatements(expanded, StmtKind::kFor), 1) << ToString(expanded);
  EXPECT_EQ(testing::CountStatements(expanded, StmtKind::kStore), 2 * (1 + 3) + 1) << ToString(expanded);
}

TEST(ExpandLoops, LoopsOfTooManyStoresBecomeSerialWithAHint) {
  Analyzer analyzer;
  const Expr i = MakeVar("i"), j = MakeVar("j");
  const Expr index = Add(Mul(i, IntImm(4)), j);
  const Stmt inner = MakeFor(ForKind::kUnroll, j, 4, MakeStore(kTo, index, From(index)));
  const Stmt nest = MakeFor(ForKind::kUnroll, i, 100, inner);
  EXPECT_EQ(CountStores(nest), 400);
  const Stmt expanded = LoopExpander(analyzer, IsUnrolled, 399).Expand(nest);
  ASSERT_EQ(expanded->kind, StmtKind::kFor);
  EXPECT_EQ(expanded->for_kind, ForKind::kSerial);
  EXPECT_EQ(expanded->unroll, 8);
  EXPECT_EQ(testing::CountStatements(expanded, StmtKind::kStore), 4) << "the inner loop is short enough";
  EXPECT_EQ(testing::CountStatements(LoopExpander(analyzer, IsUnrolled, 400).Expand(nest), StmtKind::kStore), 400);
}

TEST(ExpandLoops, GivenValuesReplaceVariables) {
  Analyzer analyzer;
  const Expr i = MakeVar("i"), n = MakeVar("n");
  const Stmt nest = MakeFor(ForKind::kSerial, i, 8, MakeStore(kTo, Add(i, n), From(n)));
  const Stmt given = LoopExpander(analyzer, IsUnrolled).Expand(nest, {{n.get(), IntImm(5)}});
  EXPECT_TRUE(Equal(given->body[0]->index, Add(i, IntImm(5)))) << ToString(given);
  EXPECT_TRUE(Equal(given->body[0]->value, From(IntImm(5)))) << ToString(given);
}

TEST(ExpandLoops, NothingIsLeftOfStoresOfAnElementToItself) {
  Analyzer analyzer;
  const Expr i = MakeVar("i");
  const Expr own = Load(kTo, DType::kFloat32, {i});
  const Stmt loop =
      MakeFor(ForKind::kUnroll, i, 2, MakeStore(kTo, i, Select(Eq(i, IntImm(1)), own, Add(own, FloatImm(1)))));
  const Stmt expanded = LoopExpander(analyzer, IsUnrolled).Expand(loop);
  ASSERT_EQ(expanded->kind, StmtKind::kStore) << ToString(expanded);
  EXPECT_TRUE(Equal(expanded->index, IntImm(0)));
  const Stmt same = MakeFor(ForKind::kUnroll, i, 2, MakeStore(kTo, i, own));
  EXPECT_EQ(LoopExpander(analyzer, IsUnrolled).Expand(same), nullptr);
}

TEST(ExpandLoops, AValueChoosesByTheVariableOfALoopOnlyInAConditionOfASelect) {
  const Expr i = MakeVar("i"), j = MakeVar("j");
  EXPECT_TRUE(ChoosesByVariable(*MakeFor(ForKind::kSerial, i, 2, Scaled(i))));
  EXPECT_TRUE(ChoosesByVariable(*MakeFor(ForKind::kSerial, i, 2, MakeFor(ForKind::kVectorize, j, 4, Scaled(i)))));
  EXPECT_FALSE(ChoosesByVariable(*MakeFor(ForKind::kSerial, i, 2, Scaled(j))));
  const Stmt read = MakeStore(kTo, i, Select(Eq(j, IntImm(0)), From(i), FloatImm(0)));
  EXPECT_FALSE(ChoosesByVariable(*MakeFor(ForKind::kSerial, i, 2, read)));
  EXPECT_FALSE(ChoosesByVariable(*MakeFor(ForKind::kSerial, i, 2, MakeIf(Lt(i, IntImm(1)), read))));
}

}  // namespace
}  // namespace diapason
