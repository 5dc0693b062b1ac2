#include "compiler/tensor/compute_dag.h"

#include <gtest/gtest.h>

#include "tests/tensor/dags.h"

namespace diapason {
namespace {

TEST(ComputeDag, KnowsItsStages) {
  const ComputeDag dag = testing_dags::ConvBiasRelu({8, 3, 4, 3, 1, 1});
  ASSERT_EQ(dag.size(), 7);  // x w bias pad conv biased relu
  EXPECT_EQ(dag.inputs(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(dag.consumers(0), std::vector<int>{3});
  EXPECT_EQ(dag.consumers(4), std::vector<int>{5});
  EXPECT_EQ(dag.producers(4), (std::vector<int>{3, 1}));
  EXPECT_TRUE(dag.is_output(6));
  EXPECT_FALSE(dag.is_output(5));
  EXPECT_EQ(dag.stage(4).shape(), (std::vector<int64_t>{1, 8, 8, 4}));
  EXPECT_EQ(dag.stage(4).elements(), 256);
}

TEST(ComputeDag, CountsFloatingPointOperations) {
  EXPECT_EQ(testing_dags::Matmul(4, 5, 6).flops(), 2 * 4 * 5 * 6);
  // The padding counts nothing: its arithmetic is on indices.
  EXPECT_EQ(testing_dags::ConvBiasRelu({8, 3, 4, 3, 1, 1}).flops(), 8 * 8 * 4 * (2 * 27 + 2));
}

TEST(ComputeDag, StagesThatReadConstantsAloneArePrologue) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4});
  const int w = b.Constant("w", {4});
  const int doubled = b.Compute("doubled", {4}, [&](auto& i) { return Mul(b.At(w, i), FloatImm(2)); });
  const int out = b.Compute("out", {4}, [&](auto& i) { return Add(b.At(x, i), b.At(doubled, i)); });
  const ComputeDag dag = b.Build({out}).value();
  EXPECT_FALSE(dag.is_prologue(x));
  EXPECT_TRUE(dag.is_prologue(w));
  EXPECT_TRUE(dag.is_prologue(doubled));
  EXPECT_FALSE(dag.is_prologue(out));
  EXPECT_EQ(dag.flops(), 4);
}

// Its buffer is not kept between runs.
TEST(ComputeDag, AnOutputIsNoPrologueEvenIfAllItReadsIsConstant) {
  DagBuilder b;
  const int w = b.Constant("w", {4});
  const int doubled = b.Compute("doubled", {4}, [&](auto& i) { return Mul(b.At(w, i), FloatImm(2)); });
  const int out = b.Compute("out", {4}, [&](auto& i) { return Add(b.At(doubled, i), FloatImm(1)); });
  const ComputeDag dag = b.Build({out}).value();
  EXPECT_TRUE(dag.is_prologue(doubled));
  EXPECT_FALSE(dag.is_prologue(out));
}

TEST(ComputeDag, PrintsAllStages) {
  EXPECT_EQ(testing_dags::Matmul(4, 5, 6).ToString(),
            "x: float32[4, 6] placeholder\n"
            "w: float32[6, 5] constant\n"
            "c: float32[4, 5]\n"
            "  c[i0, i1] = sum(x[i0, r0] * w[r0, i1] over r0 < 6)\n"
            "outputs: c\n");
}

TEST(ComputeDag, BuilderMakesNamesUnique) {
  DagBuilder b;
  b.Placeholder("x", {4});
  const int second = b.Placeholder("x", {4});
  EXPECT_EQ(b.stage(second).name, "x_1");
}

// Each case breaks one rule of a valid dag.
TEST(ComputeDag, RefusesWhatIsNoDag) {
  const ComputeDag good = testing_dags::Matmul(4, 5, 6);
  struct Case {
    std::function<void(std::vector<Stage>&, std::vector<int>&)> damage;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& s, auto&) { s[0].name = "a b"; }, "stage 'a b': a name consists of letters, digits, '_' and '.'"},
      {[](auto& s, auto&) { s[1].name = "x"; }, "stage 'x': the name is taken by another stage"},
      {[](auto& s, auto&) { s[2].axes[0].extent = 0; }, "stage 'c': axis i0 has extent 0"},
      {[](auto& s, auto&) { s[2].axes[0].extent = int64_t{1} << 60; }, "stage 'c': it is too large"},
      {[](auto& s, auto&) { s[2].axes[0].var = s[0].axes[0].var; },
       "stage 'c': the variable i0 is the axis of two loops"},
      {[](auto& s, auto&) { s[2].combiner = Combiner::kNone; },
       "stage 'c': a stage has a combiner if and only if it has reduce axes"},
      {[](auto& s, auto&) { s[2].body = nullptr; }, "stage 'c': it has no body"},
      {[](auto& s, auto&) { s[2].dtype = DType::kFloat16; }, "stage 'c': it is float16 but its body is float32"},
      {[](auto& s, auto&) {
         s[2].body = Load(2, DType::kFloat32, {IntImm(0), IntImm(0)});
       },
       "stage 'c': it reads stage 2, which does not come before it"},
      {[](auto& s, auto&) { s[2].body = Load(0, DType::kFloat32, {IntImm(0)}); },
       "stage 'c': it reads 'x' with 1 indices, which has 2 axes"},
      {[](auto& s, auto&) {
         s[2].body = Cast(DType::kFloat32, Load(0, DType::kInt8, {IntImm(0), IntImm(0)}));
       },
       "stage 'c': it reads 'x' as int8, which is float32"},
      {[](auto& s, auto&) { s[2].body = Cast(DType::kFloat32, s[0].axes[0].var); },
       "stage 'c': it uses the variable i0, which is none of its axes"},
      {[](auto& s, auto&) { s[2].body = Call("sinc", {s[2].body}); },
       "stage 'c': a call has an unknown function or the wrong arguments"},
      {[](auto& s, auto&) { s[2].constant = true; }, "stage 'c': only a placeholder can be constant"},
      {[](auto&, auto& outputs) { outputs = {}; }, "a dag has at least one output"},
      {[](auto&, auto& outputs) { outputs = {3}; }, "output 3 is none of the 3 stages"},
      {[](auto&, auto& outputs) { outputs = {0}; }, "stage 'x': a placeholder cannot be an output"},
      {[](auto&, auto& outputs) {
         outputs = {2, 2};
       },
       "stage 'c': it is an output twice"},
  };
  for (const Case& c : cases) {
    std::vector<Stage> stages = good.stages();
    std::vector<int> outputs = good.outputs();
    c.damage(stages, outputs);
    const auto dag = ComputeDag::Create(std::move(stages), std::move(outputs));
    EXPECT_EQ(std::string(dag.status().message()), c.message);
  }
}

TEST(ComputeDag, IdentitiesOfCombiners) {
  EXPECT_EQ(ToString(IdentityOf(Combiner::kSum, DType::kFloat32)), "0.0");
  EXPECT_EQ(ToString(IdentityOf(Combiner::kProd, DType::kInt32)), "1");
  EXPECT_EQ(ToString(IdentityOf(Combiner::kMax, DType::kInt8)), "-128");
  EXPECT_EQ(ToString(IdentityOf(Combiner::kMin, DType::kFloat16)), "inf");
  const Expr x = MakeVar("x");
  EXPECT_EQ(ToString(Combine(Combiner::kMax, x, IntImm(2))), "max(x, 2)");
}

}  // namespace
}  // namespace diapason
