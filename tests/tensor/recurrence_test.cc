#include "compiler/tensor/recurrence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/tensor/recurrent_dags.h"

namespace diapason {
namespace {

using testing::CellKind;
using testing::Recurrent;
using testing::RecurrentShape;

TEST(RecurrenceTest, KnowsStepsThatAreAlike) {
  for (const auto& [name, shape] : testing::Recurrences()) {
    SCOPED_TRACE(name);
    const ComputeDag dag = Recurrent(shape);
    const auto r = FindRecurrence(dag);
    ASSERT_TRUE(r.ok()) << r.status() << "\n" << dag.ToString();
    EXPECT_EQ(r->units, shape.units);
    EXPECT_EQ(r->steps, shape.initial ? shape.steps : shape.steps - 1);
    EXPECT_EQ(r->start.empty(), shape.initial);
    EXPECT_EQ(r->start_expressions.size(), r->start.size());
    EXPECT_EQ(r->carried.size(), shape.cell == CellKind::kLstm ? 2u : 1u);
    EXPECT_EQ(r->expressions.size(), r->body.size());
  }
}

// Each element of the output is stored once.
TEST(RecurrenceTest, StoresEachElementOnce) {
  for (const auto& [name, shape] : testing::Recurrences()) {
    SCOPED_TRACE(name);
    const ComputeDag dag = Recurrent(shape);
    const Recurrence r = FindRecurrence(dag).value();
    std::multiset<int64_t> stored;
    for (const Recurrence::Store& store : r.stores) {
      const bool once = store.last || std::find(r.start.begin(), r.start.end(), store.stage) != r.start.end();
      for (int64_t k = 0; k < (once ? 1 : r.steps); ++k)
        for (int64_t u = 0; u < r.units; ++u) stored.insert(store.offset + k * store.step_stride + u);
    }
    const int64_t elements = dag.stage(dag.outputs()[0]).elements();
    ASSERT_EQ(static_cast<int64_t>(stored.size()), elements);
    EXPECT_EQ(static_cast<int64_t>(std::set<int64_t>(stored.begin(), stored.end()).size()), elements);
    EXPECT_EQ(*stored.begin(), 0);
    EXPECT_EQ(*stored.rbegin(), elements - 1);
  }
}

TEST(RecurrenceTest, SaysWhatItReadsInEachStep) {
  const RecurrentShape shape{.cell = CellKind::kRnn, .initial = true, .backward = true};
  const ComputeDag dag = Recurrent(shape);
  const Recurrence r = FindRecurrence(dag).value();
  std::set<std::string> loads;
  for (const Expr& e : r.expressions)
    Visit(e, [&](const ExprNode& node) {
      if (node.kind != ExprKind::kLoad || node.buffer < 0 || dag.stage(node.buffer).name != "x") return;
      Analyzer analyzer;
      loads.insert(ToString(analyzer.Simplify(Substitute(node.args[0], {{r.step.get(), IntImm(2)}}))));
    });
  EXPECT_EQ(loads, std::set<std::string>{std::to_string(shape.steps - 3)});
}

TEST(RecurrenceTest, SaysWhyADagIsNone) {
  const auto why = [](const ComputeDag& dag) { return std::string(FindRecurrence(dag).status().message()); };
  EXPECT_NE(why(Recurrent({.steps = 4, .initial = false})).find("no steps are alike"), std::string::npos);
  EXPECT_NE(why(Recurrent({.rows = 17})).find("more than 16 rows"), std::string::npos);
  EXPECT_NE(why(Recurrent({.cell = CellKind::kRnn, .units = 1})).find("no units in common"), std::string::npos);

  // Products whose weights are not the same.
  DagBuilder b;
  int h = b.Placeholder("x", {1, 8});
  for (int k = 0; k < 6; ++k) {
    const int w = b.Constant("w" + std::to_string(k), {8, 8});
    h = b.Reduce("p" + std::to_string(k), {1, 8}, {8}, Combiner::kSum, [&](const auto& i, const auto& r) {
      return Mul(b.At(h, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
    });
  }
  EXPECT_NE(why(b.Build({h}).value()).find("no steps are alike"), std::string::npos);
}

// Gates that a step joins: of a choice between two stages only one is left for each group.
TEST(RecurrenceTest, KnowsJoinedStages) {
  DagBuilder b;
  const int w = b.Constant("w", {8, 8});
  int h = b.Placeholder("h0", {1, 8});
  for (int k = 0; k < 6; ++k) {
    const std::string step = std::to_string(k);
    const int product = b.Reduce("p" + step, {1, 8}, {8}, Combiner::kSum, [&](const auto& i, const auto& r) {
      return Mul(b.At(h, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
    });
    const int more = b.Compute("m" + step, {1, 8}, [&](const auto& i) { return Call("tanh", {b.At(product, i)}); });
    const int both = b.Compute("b" + step, {1, 16}, [&](const auto& i) {
      return Select(Lt(i[1], IntImm(8)), b.At(product, i), b.At(more, {i[0], Sub(i[1], IntImm(8))}));
    });
    h = b.Compute("h" + step, {1, 8}, [&](const auto& i) {
      return Mul(b.At(both, i), b.At(both, {i[0], Add(i[1], IntImm(8))}));
    });
  }
  const auto r = FindRecurrence(b.Build({h}).value());
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->steps, 6);
  EXPECT_EQ(r->units, 8);
}

// Where each result is read twice, two of them are a step.
TEST(RecurrenceTest, TakesTwoResultsAsAStepWhereMemoryIsLonger) {
  DagBuilder b;
  const int w = b.Constant("w", {8, 8});
  std::vector<int> h = {b.Placeholder("h0", {1, 8}), b.Placeholder("h1", {1, 8})};
  for (int k = 0; k < 8; ++k) {
    const int product =
        b.Reduce("p" + std::to_string(k), {1, 8}, {8}, Combiner::kSum, [&](const auto& i, const auto& r) {
          return Mul(b.At(h.back(), {i[0], r[0]}), b.At(w, {r[0], i[1]}));
        });
    h.push_back(b.Compute("h" + std::to_string(k + 2), {1, 8},
                          [&](const auto& i) { return Add(b.At(product, i), b.At(h[h.size() - 2], i)); }));
  }
  const auto r = FindRecurrence(b.Build({h.back()}).value());
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->steps, 4);
  EXPECT_EQ(r->body.size(), 4u);
}

}  // namespace
}  // namespace diapason
