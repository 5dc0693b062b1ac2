#include "compiler/tensor/run_sums.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "compiler/tensor/interpret.h"

namespace diapason {
namespace {

struct Sums {
  DagBuilder builder;
  int x, sums, given, totals;
  Sums() {
    x = builder.Placeholder("x", {2, 3, 8});
    sums = AddRunSums(builder, x, 4);
    given = builder.Placeholder("given", {2, 2, 3, 2});
    totals = AddRowTotals(builder, given);
  }
};

TEST(RunSums, AreOfNeighboursAndTheirSquares) {
  Sums s;
  const ComputeDag dag = s.builder.Build({s.sums, s.totals}).value();
  Array x(DType::kFloat32, {2, 3, 8}), given(DType::kFloat32, {2, 2, 3, 2});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i));
  for (int64_t i = 0; i < given.elements(); ++i) given.set(i, static_cast<double>(i));
  const std::vector<Array> got = Interpret(dag, std::map<int, const Array*>{{s.x, &x}, {s.given, &given}}).value();
  ASSERT_EQ(got[0].shape, (std::vector<int64_t>{2, 2, 3, 2}));
  // Run 1 of row 2 of image 1 is 44, 45, 46, 47.
  const int64_t place = ((1 * 2 + 1) * 3 + 2) * 2;
  EXPECT_EQ(got[0].at(place), 44 + 45 + 46 + 47);
  EXPECT_EQ(got[0].at(place + 1), 44 * 44 + 45 * 45 + 46 * 46 + 47 * 47);
  ASSERT_EQ(got[1].shape, (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(got[1].at(5), 5 + (12 + 5));
}

TEST(RunSums, AreKnownAgain) {
  Sums s;
  const ComputeDag dag = s.builder.Build({s.sums, s.totals}).value();
  const auto stage_of = [&](int id) -> const Stage& { return dag.stage(id); };
  const auto sums = RunSumsOf(dag.stage(s.sums), stage_of);
  ASSERT_TRUE(sums.has_value());
  EXPECT_EQ(sums->source, s.x);
  EXPECT_EQ(sums->run, 4);
  EXPECT_EQ(sums->runs, 2);
  EXPECT_FALSE(RunSumsOf(dag.stage(s.x), stage_of));
  EXPECT_FALSE(RunSumsOf(dag.stage(s.totals), stage_of));
  EXPECT_TRUE(IsRowTotals(dag.stage(s.totals), stage_of));
  EXPECT_FALSE(IsRowTotals(dag.stage(s.sums), stage_of));
}

// Elements that are no neighbours, or the squares of others.
TEST(RunSums, AreNothingElse) {
  DagBuilder b;
  const int x = b.Placeholder("x", {3, 8});
  const auto sums = [&](bool apart, int64_t shift) {
    return b.Reduce("sums", {2, 3, 2}, {4}, Combiner::kSum, [&](auto& i, auto& r) {
      const auto at = [&](int64_t by) {
        const Expr place = apart ? Add(Mul(r[0], IntImm(2)), i[0]) : Add(Mul(i[0], IntImm(4)), r[0]);
        return b.At(x, {i[1], FloorMod(Add(place, IntImm(by)), 8)});
      };
      return Select(Eq(i[2], IntImm(0)), at(0), Mul(at(shift), at(shift)));
    });
  };
  const int apart = sums(true, 0), shifted = sums(false, 1), right = sums(false, 0);
  const ComputeDag dag = b.Build({apart, shifted, right}).value();
  const auto stage_of = [&](int id) -> const Stage& { return dag.stage(id); };
  EXPECT_FALSE(RunSumsOf(dag.stage(apart), stage_of));
  EXPECT_FALSE(RunSumsOf(dag.stage(shifted), stage_of));
  EXPECT_TRUE(RunSumsOf(dag.stage(right), stage_of));
}

}  // namespace
}  // namespace diapason
