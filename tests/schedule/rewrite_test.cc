#include "compiler/schedule/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "compiler/schedule/rewrite_strassen.h"
#include "compiler/tensor/interpret.h"
#include "compiler/tensor/serialize.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

struct Conv {
  int64_t batch = 1, height = 8, width = 8, ci = 3, co = 4, kernel = 3, stride = 1, pad = 1;
  bool residual = false, epilogue = true, constant = true;
};

// NHWC convolution with bias, residual and relu as compiler/graph writes it.
ComputeDag Convolution(const Conv& s) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int64_t oh = (s.height + 2 * s.pad - s.kernel) / s.stride + 1,
                ow = (s.width + 2 * s.pad - s.kernel) / s.stride + 1;
  const std::vector<int64_t> shape{s.batch, oh, ow, s.co}, filter{s.kernel, s.kernel, s.ci, s.co};
  const int x = b.Placeholder("x", {s.batch, s.height, s.width, s.ci});
  const int w = s.constant ? b.Constant("w", filter) : b.Placeholder("w", filter);
  int input = x;
  if (s.pad > 0) {
    input = b.Compute("pad", {s.batch, s.height + 2 * s.pad, s.width + 2 * s.pad, s.ci}, [&](const Vars& i) {
      const Expr rows = And(Le(IntImm(s.pad), i[1]), Lt(i[1], IntImm(s.height + s.pad)));
      const Expr columns = And(Le(IntImm(s.pad), i[2]), Lt(i[2], IntImm(s.width + s.pad)));
      const Expr y = Sub(i[1], IntImm(s.pad)), z = Sub(i[2], IntImm(s.pad));
      return Select(And(rows, columns), b.At(x, {i[0], y, z, i[3]}), FloatImm(0));
    });
  }
  int result = b.Reduce("conv", shape, {s.kernel, s.kernel, s.ci}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    const Expr y = Add(Mul(i[1], IntImm(s.stride)), r[0]), z = Add(Mul(i[2], IntImm(s.stride)), r[1]);
    return Mul(b.At(input, {i[0], y, z, r[2]}), b.At(w, {r[0], r[1], r[2], i[3]}));
  });
  if (!s.epilogue) return b.Build({result}).value();
  const int bias = b.Constant("bias", {s.co});
  result = b.Compute("biased", shape, [&](const Vars& i) { return Add(b.At(result, i), b.At(bias, {i[3]})); });
  if (s.residual) {
    const int other = b.Placeholder("other", shape);
    result = b.Compute("added", shape, [&](const Vars& i) { return Add(b.At(result, i), b.At(other, i)); });
  }
  result = b.Compute("relu", shape, [&](const Vars& i) { return Max(b.At(result, i), FloatImm(0)); });
  return b.Build({result}).value();
}

// Outputs of a dag whose n-th placeholder holds the n-th series of random numbers, as flat lists.
std::vector<std::vector<double>> OutputsOf(const ComputeDag& dag) {
  std::map<int, Array> inputs;
  uint32_t seed = 0;
  for (int id : dag.inputs()) {
    std::mt19937 random(++seed);
    Array values(dag.stage(id).dtype, dag.stage(id).shape());
    for (int64_t i = 0; i < values.elements(); ++i) values.set(i, std::uniform_real_distribution<>(-1, 1)(random));
    inputs[id] = std::move(values);
  }
  const auto outputs = Interpret(dag, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status() << "\n" << dag.ToString();
  std::vector<std::vector<double>> flat;
  if (!outputs.ok()) return flat;
  for (const Array& output : *outputs) {
    flat.emplace_back();
    for (int64_t i = 0; i < output.elements(); ++i) flat.back().push_back(output.at(i));
  }
  return flat;
}

void ExpectSameResults(const ComputeDag& dag, const DagRewrite& rewrite, double tolerance) {
  SCOPED_TRACE(rewrite.ToString());
  const auto rewritten = ApplyRewrite(dag, rewrite);
  ASSERT_TRUE(rewritten.ok()) << rewritten.status();
  const std::vector<int> inputs = dag.inputs(), new_inputs = rewritten->inputs();
  ASSERT_EQ(inputs.size(), new_inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(dag.stage(inputs[i]).elements(), rewritten->stage(new_inputs[i]).elements());
    EXPECT_EQ(dag.stage(inputs[i]).dtype, rewritten->stage(new_inputs[i]).dtype);
    EXPECT_EQ(dag.stage(inputs[i]).constant, rewritten->stage(new_inputs[i]).constant);
  }
  const auto expected = OutputsOf(dag), actual = OutputsOf(*rewritten);
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    ASSERT_EQ(expected[o].size(), actual[o].size());
    for (size_t i = 0; i < expected[o].size(); ++i)
      ASSERT_NEAR(expected[o][i], actual[o][i], tolerance) << "element " << i << "\n" << rewritten->ToString();
  }
  // A worker that gets the dag as bytes makes the same rewrite of it.
  const ComputeDag sent = ParseDag(SerializeDag(dag)).value();
  EXPECT_EQ(SerializeDag(ApplyRewrite(sent, rewrite).value()), SerializeDag(*rewritten));
}

std::vector<std::string> NamesOf(const std::vector<DagRewrite>& rewrites) {
  std::vector<std::string> names;
  for (const DagRewrite& rewrite : rewrites) names.push_back(rewrite.ToString());
  return names;
}

TEST(DagRewrite, ComputesTheSameAsTheDag) {
  const Conv cases[] = {
      {},
      {.height = 6, .width = 10, .residual = true},
      {.height = 7, .width = 7, .residual = true},  // tiles stick out
      {.height = 8, .width = 6, .pad = 0},          // no padding: the tiles read the input
      {.batch = 3, .height = 7, .width = 5, .residual = true},
      {.batch = 2, .height = 4, .width = 8},
      {.epilogue = false},
      {.height = 5, .width = 5, .epilogue = false},
      {.height = 9, .width = 9, .stride = 2},
      {.kernel = 1, .pad = 0},
      {.kernel = 5, .pad = 2},
      {.ci = 1, .co = 2},
      {.height = 16, .width = 16, .kernel = 7, .stride = 2, .pad = 3, .residual = true},  // rows of whole vectors
      {.batch = 2, .height = 9, .width = 11, .kernel = 5, .stride = 3, .pad = 1},
      {.height = 9, .width = 13, .ci = 2, .stride = 2, .pad = 0},
      {.height = 7, .width = 9, .ci = 5, .constant = false},
      {.height = 6, .width = 5, .ci = 6, .kernel = 2, .pad = 1},
      {.width = 4, .ci = 7, .kernel = 5, .pad = 4},
  };
  size_t compared = 0;
  for (const Conv& shape : cases) {
    const ComputeDag dag = Convolution(shape);
    SCOPED_TRACE(dag.ToString());
    for (const DagRewrite& rewrite : RewritesOf(dag)) {
      ++compared;
      const double tolerance = rewrite.name == "winograd" || rewrite.name == "strassen" ? 1e-5 : 1e-6;
      ExpectSameResults(dag, rewrite, tolerance);
      const std::optional<DagRewrite> along_k = WithWeightsAlongK(dag, rewrite);
      EXPECT_EQ(along_k.has_value(), shape.constant && (rewrite.name == "gemm" || rewrite.name == "winograd"));
      if (along_k) ExpectSameResults(dag, *along_k, tolerance);
    }
  }
  EXPECT_GE(compared, 2 * std::size(cases));
}

TEST(DagRewrite, OfAttentionComputesTheSame) {
  const DagRewrite rewrite{"attention", {}};
  const auto cases = testing::Attentions();
  for (const testing::NamedDag& attention : cases) {
    SCOPED_TRACE(attention.name);
    const std::vector<DagRewrite> rewrites = RewritesOf(attention.dag);
    EXPECT_EQ(std::count(rewrites.begin(), rewrites.end(), rewrite), 1);
    // Weights of float16 attentions are rounded.
    ExpectSameResults(attention.dag, rewrite, attention.name.find("half") == std::string::npos ? 1e-6 : 2e-3);
  }
  EXPECT_GE(cases.size(), 8u);
}

// Differences of exponents are scaled, and queries have the sign: of a factor that is known, or not, or negative.
TEST(DagRewrite, OfAttentionScalesInExponents) {
  const DagRewrite rewrite{"attention", {1}};
  testing::AttentionShape shape{.queries = 13, .keys = 37, .size = 20, .values = 24, .masked = false};
  for (const bool transposed : {false, true}) {
    for (const double scale : {0.3, -0.7, 0.0}) {
      SCOPED_TRACE(scale);
      shape.scale = scale;
      shape.transposed_keys = transposed;
      ExpectSameResults(testing::Attention(shape), rewrite, 1e-5);
    }
  }
  shape.scale_is_input = true;
  ExpectSameResults(testing::Attention(shape), rewrite, 1e-5);
  shape.dtype = DType::kFloat16;
  ExpectSameResults(testing::Attention(shape), rewrite, 2e-3);
  const ComputeDag rewritten = ApplyRewrite(testing::Attention(shape), rewrite).value();
  for (const Stage& stage : rewritten.stages()) EXPECT_NE(stage.name, "scaled");
  const std::vector<DagRewrite> rewrites = RewritesOf(testing::Attention(shape));
  EXPECT_EQ(std::count(rewrites.begin(), rewrites.end(), rewrite), 1);
  // What is added to scores is no factor.
  shape.masked = true;
  EXPECT_EQ(ApplyRewrite(testing::Attention(shape), rewrite).status().ToString(),
            "INVALID_ARGUMENT: no attention rewrite: its scores are not scaled by a factor alone");
}

TEST(DagRewrite, ListsThoseThatApply) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({}))), (Names{"direct", "gemm", "winograd(2)", "winograd(4)", "rows"}));
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.residual = true}))),
            (Names{"direct", "gemm", "winograd(2)", "winograd(4)", "rows"}));
  // An even number of channels makes whole blocks, four of them blocks of blocks.
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.ci = 2}))),
            (Names{"direct", "gemm", "winograd(2)", "winograd(4)", "rows", "strassen(1)"}));
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.stride = 2}))), (Names{"direct", "gemm", "rows"}));
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.kernel = 1, .pad = 0}))), (Names{"direct", "gemm"}));
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.kernel = 5, .pad = 2}))), (Names{"direct", "gemm", "rows"}));
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.constant = false}))), (Names{"direct", "gemm", "rows"}));
  // Four channels, or many, are vectors without rows.
  for (int64_t ci : {4, 8})
    EXPECT_EQ(NamesOf(RewritesOf(Convolution({.ci = ci, .stride = 2}))),
              (Names{"direct", "gemm", "strassen(1)", "strassen(2)"}));
  EXPECT_EQ(NamesOf(RewritesOf(Convolution({.ci = 9, .stride = 2}))), (Names{"direct", "gemm"}));
  DagBuilder b;
  const int x = b.Placeholder("x", {8});
  const int y = b.Compute("y", {8}, [&](auto& i) { return Call("exp", {b.At(x, i)}); });
  EXPECT_EQ(NamesOf(RewritesOf(b.Build({y}).value())), std::vector<std::string>{"direct"});
}

TEST(DagRewrite, RefusesUnknownOnesAndThoseThatDoNotApply) {
  const ComputeDag dag = Convolution({.stride = 2});
  EXPECT_EQ(ApplyRewrite(dag, DagRewrite{"fft", {}}).status().ToString(),
            "INVALID_ARGUMENT: there is no rewrite fft: known are direct, gemm, gemm_k, winograd(2), "
            "winograd(4), winograd_k(2), winograd_k(4), halves, rows, padded, strassen(1), strassen(2), attention, "
            "attention(1) and "
            "library");
  EXPECT_EQ(ApplyRewrite(dag, DagRewrite{"winograd", {3}}).status().ToString(),
            "INVALID_ARGUMENT: no winograd rewrite: tiles are of 2 or 4, not 3");
  EXPECT_EQ(ApplyRewrite(dag, DagRewrite{"winograd", {2}}).status().ToString(),
            "INVALID_ARGUMENT: no winograd rewrite: it is no dense convolution of stride and dilation 1 in NHWC");
  EXPECT_EQ(ApplyRewrite(dag, DagRewrite{"attention", {}}).status().ToString(),
            "INVALID_ARGUMENT: no attention rewrite: there are no two products, one of what the other gives");
  EXPECT_EQ(ApplyRewrite(Convolution({.ci = 8}), DagRewrite{"rows", {}}).status().ToString(),
            "INVALID_ARGUMENT: no rows rewrite: a row of its window is no run of a few channels");
}

// A row of results: x[rows, terms] times w[terms, columns], and a relu.
ComputeDag RowOfProducts(int64_t rows, int64_t terms, int64_t columns, DType dtype, bool constant = true) {
  DagBuilder b;
  const int x = b.Placeholder("x", {rows, terms}, dtype);
  const int w = constant ? b.Constant("w", {terms, columns}, dtype) : b.Placeholder("w", {terms, columns}, dtype);
  const int y = b.Reduce("y", {rows, columns}, {terms}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(Cast(DType::kFloat32, b.At(x, {i[0], r[0]})), Cast(DType::kFloat32, b.At(w, {r[0], i[1]})));
  });
  return b.Build({b.Compute("relu", {rows, columns}, [&](const auto& i) { return Max(b.At(y, i), FloatImm(0)); })})
      .value();
}

TEST(PaddedRewrite, AlignsTheRowsOfAMatrixThatAVectorIsMultipliedBy) {
  const DagRewrite rewrite{"padded", {}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const ComputeDag dag = RowOfProducts(1, 12, 21, dtype);
    ExpectSameResults(dag, rewrite, 1e-6);
    const ComputeDag padded = ApplyRewrite(dag, rewrite).value();
    ASSERT_EQ(padded.size(), dag.size() + 1);
    EXPECT_EQ(padded.stage(2).shape(), (std::vector<int64_t>{12, 24}));
    EXPECT_TRUE(padded.is_prologue(2));
    const std::vector<DagRewrite> rewrites = RewritesOf(dag);
    EXPECT_EQ(std::count(rewrites.begin(), rewrites.end(), rewrite), 1);
  }
}

TEST(PaddedRewrite, RefusesOthers) {
  const auto refusal = [](const ComputeDag& dag) { return ApplyRewrite(dag, {"padded", {}}).status().ToString(); };
  const std::string why = "INVALID_ARGUMENT: no padded rewrite: ";
  EXPECT_EQ(refusal(RowOfProducts(1, 12, 20, DType::kFloat32)), why + "rows of the matrix are whole vectors");
  for (const ComputeDag& dag :
       {RowOfProducts(2, 12, 21, DType::kFloat32), RowOfProducts(1, 12, 21, DType::kFloat32, false)})
    EXPECT_EQ(refusal(dag), why + "no vector is multiplied by the columns of a constant matrix");
  EXPECT_EQ(refusal(testing::Attention({.queries = 3, .keys = 5, .size = 4, .values = 4})),
            why + "there is not one sum of products");
}

TEST(GemmRewrite, FusesPixelsAndWindow) {
  const ComputeDag gemm = ApplyRewrite(Convolution({.height = 6, .width = 5, .ci = 7}), DagRewrite{"gemm", {}}).value();
  for (const Stage& stage : gemm.stages()) {
    if (!stage.reduces()) continue;
    EXPECT_EQ(stage.shape(), (std::vector<int64_t>{30, 4}));
    EXPECT_EQ(stage.reduce_axes[0].extent, 63);
  }
}

// A row of the input and its copy agree modulo 4 elements: what is padded in front is 12 elements, not the 9 of 3
// columns.
TEST(RowsRewrite, KeepsTheAlignmentOfRows) {
  const ComputeDag rows =
      ApplyRewrite(Convolution({.height = 16, .width = 16, .kernel = 7, .stride = 2, .pad = 3, .epilogue = false}),
                   DagRewrite{"rows", {}})
          .value();
  const Stage& conv = rows.stage(rows.outputs()[0]);
  EXPECT_EQ(conv.shape(), (std::vector<int64_t>{1, 8, 8, 4}));
  EXPECT_EQ(conv.reduce_axes[1].extent, 21);
  EXPECT_EQ(ToString(conv.body), "T2[i0, i1 * 2 + r0, i2 * 6 + (j + 3)] * T1[r0, j, i3]");
  EXPECT_EQ(rows.stage(0).shape(), (std::vector<int64_t>{1, 16, 48}));
  EXPECT_EQ(rows.stage(1).shape(), (std::vector<int64_t>{7, 21, 4}));
  EXPECT_EQ(rows.stage(2).shape(), (std::vector<int64_t>{1, 22, 68}));
  EXPECT_EQ(ToString(rows.stage(2).body), "2 < y && y < 19 && 11 < p && p < 60 ? T0[0, y - 3, p - 12] : 0.0");
}

TEST(GemmRewrite, LaysConstantColumnsOutAlongK) {
  const ComputeDag dag = Convolution({.height = 6, .width = 5, .ci = 7});
  const ComputeDag gemm = ApplyRewrite(dag, DagRewrite{"gemm_k", {}}).value();
  int prologue = 0;
  for (int id = 0; id < gemm.size(); ++id) {
    const Stage& stage = gemm.stage(id);
    if (!gemm.is_prologue(id) || stage.placeholder) continue;
    ++prologue;
    EXPECT_EQ(stage.shape(), (std::vector<int64_t>{4, 63}));
  }
  EXPECT_EQ(prologue, 1);
  EXPECT_EQ(ApplyRewrite(Convolution({.constant = false}), DagRewrite{"gemm_k", {}}).status().ToString(),
            "INVALID_ARGUMENT: no gemm rewrite: the columns are no constants");
  EXPECT_FALSE(WithWeightsAlongK(dag, DagRewrite{"direct", {}}).has_value());
}

TEST(GemmRewrite, TakesColumnsThatLieAlongKAsTheyAre) {
  DagBuilder b;
  const int x = b.Placeholder("x", {6, 10}), w = b.Constant("w", {8, 10});
  const int c = b.Reduce("c", {6, 8}, {10}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {i[1], r[0]}));
  });
  const ComputeDag dag = b.Build({c}).value();
  EXPECT_EQ(ApplyRewrite(dag, DagRewrite{"gemm_k", {}}).value().size(), 3);
  ExpectSameResults(dag, DagRewrite{"gemm_k", {}}, 1e-6);
}

// Arithmetic of the product whose loops are not unrolled whole, and reductions that are done at build time.
struct Sums {
  double products = 0;
  int prologue = 0;
};
Sums SumsOf(const ComputeDag& rewrite) {
  Sums sums;
  for (int id = 0; id < rewrite.size(); ++id) {
    const Stage& stage = rewrite.stage(id);
    sums.prologue += rewrite.is_prologue(id) && stage.reduces();
    if (!rewrite.is_prologue(id) && stage.reduces() && stage.unroll_axes.empty())
      sums.products = 2.0 * static_cast<double>(stage.elements() * stage.terms());
  }
  return sums;
}

TEST(WinogradRewrite, SavesMultiplicationsAndTransformsWeightsAtBuildTime) {
  const ComputeDag dag = Convolution({.height = 16, .width = 16, .ci = 32, .co = 32, .epilogue = false});
  for (const auto& [m, saving] : std::vector<std::pair<int64_t, double>>{{2, 2.25}, {4, 4}}) {
    const Sums sums = SumsOf(ApplyRewrite(dag, DagRewrite{"winograd", {m}}).value());
    EXPECT_EQ(sums.prologue, 1);
    EXPECT_DOUBLE_EQ(dag.flops() / sums.products, saving);
  }
}

TEST(DagRewrite, LosesDigitsWhereErrorsExceedThoseOfPlainSums) {
  for (const DagRewrite& rewrite :
       {DagRewrite{"direct", {}}, DagRewrite{"gemm", {}}, DagRewrite{"winograd", {2}}, DagRewrite{"winograd_k", {2}}})
    EXPECT_FALSE(LosesDigits(rewrite)) << rewrite.ToString();
  for (const DagRewrite& rewrite :
       {DagRewrite{"winograd", {4}}, DagRewrite{"winograd_k", {4}}, DagRewrite{"strassen", {1}}})
    EXPECT_TRUE(LosesDigits(rewrite)) << rewrite.ToString();
}

// The interpreter rounds what a stage computes to float32, as kernels do. With the points 0, 1, -1, 2, -2 the mean
// error of winograd(4) would be 5.2e-7 instead of 3.3e-7.
TEST(WinogradRewrite, RoundingErrorsStaySmall) {
  const ComputeDag dag = Convolution({.height = 16, .width = 16, .ci = 64, .epilogue = false});
  const std::vector<double> expected = OutputsOf(dag)[0];
  for (const auto& [m, most] : std::vector<std::pair<int64_t, double>>{{2, 1.2e-7}, {4, 4.2e-7}}) {
    const std::vector<double> actual = OutputsOf(ApplyRewrite(dag, DagRewrite{"winograd", {m}}).value())[0];
    double error = 0, magnitude = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      magnitude += expected[i] * expected[i];
    }
    EXPECT_LT(std::sqrt(error / magnitude), most) << m;
  }
}

// x * w, with a residual, bias and relu after it if they are wanted.
struct ProductShape {
  int64_t m, n, k;
};
ComputeDag Product(const ProductShape& shape, bool constant, bool epilogue, DType dtype = DType::kFloat32) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k}, dtype);
  const int w = constant ? b.Constant("w", {k, n}, dtype) : b.Placeholder("w", {k, n}, dtype);
  int c = b.Reduce("c", {m, n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  if (!epilogue) return b.Build({c}).value();
  const int other = b.Placeholder("other", {m, n}, dtype), bias = b.Constant("bias", {n}, dtype);
  c = b.Compute("sum", {m, n}, [&](auto& i) { return Add(Add(b.At(c, i), b.At(other, i)), b.At(bias, {i[1]})); });
  c = b.Compute("relu", {m, n}, [&](auto& i) { return Max(b.At(c, i), FloatImm(0)); });
  return b.Build({c}).value();
}

TEST(StrassenRewrite, ComputesTheSameAsTheDag) {
  for (bool constant : {false, true})
    for (bool epilogue : {false, true})
      for (int64_t levels : {1, 2})
        ExpectSameResults(Product({8, 12, 20}, constant, epilogue), DagRewrite{"strassen", {levels}}, 1e-5);
  ExpectSameResults(Product({6, 10, 2}, false, true), DagRewrite{"strassen", {1}}, 1e-5);
  // Rows that are computed (im2col), and columns that are made at build time.
  ExpectSameResults(Convolution({.height = 6, .width = 6, .ci = 4, .residual = true}), DagRewrite{"strassen", {2}},
                    1e-5);
  ExpectSameResults(Convolution({.batch = 2, .height = 5, .width = 4, .ci = 2, .stride = 2}),
                    DagRewrite{"strassen", {1}}, 1e-5);
}

TEST(HalvesRewrite, ComputesTheSameAsTheDag) {
  const DagRewrite halves{"halves", {}};
  for (bool constant : {false, true})
    for (bool epilogue : {false, true})
      for (int64_t k : {16, 20, 48})
        ExpectSameResults(testing::Bounded(Product({8, 12, k}, constant, epilogue)), halves, 2e-6);
  // A pointwise convolution, whose pixels are rows.
  ExpectSameResults(testing::Bounded(Convolution({.ci = 12, .kernel = 1, .pad = 0, .residual = true})), halves, 2e-6);
}

// Parts of the factors, low ones first, as float16; those of constants are made at build time.
TEST(HalvesRewrite, CutsFactorsInTwo) {
  const ComputeDag dag = testing::Bounded(Product({8, 12, 20}, true, true));
  EXPECT_EQ(NamesOf(RewritesOf(dag)),
            (std::vector<std::string>{"direct", "gemm", "halves", "strassen(1)", "strassen(2)"}));
  const ComputeDag rewritten = ApplyRewrite(dag, {"halves", {}}).value();
  std::map<std::string, int> stages;
  for (int id = 0; id < rewritten.size(); ++id) stages[rewritten.stage(id).name] = id;
  const Stage &rows = rewritten.stage(stages.at("x.halves")), &columns = rewritten.stage(stages.at("w.columns.halves"));
  EXPECT_EQ(rows.shape(), (std::vector<int64_t>{8, 3 * 32}));
  EXPECT_EQ(columns.shape(), (std::vector<int64_t>{12, 3 * 32}));
  EXPECT_EQ(rows.dtype, DType::kFloat16);
  EXPECT_EQ(columns.dtype, DType::kFloat16);
  EXPECT_TRUE(rewritten.is_prologue(stages.at("w.columns.halves")));
  EXPECT_FALSE(rewritten.is_prologue(stages.at("x.halves")));
  EXPECT_EQ(rewritten.stage(stages.at("c")).terms(), 3 * 32);
}

// Elements from far below the bound up to it: errors are those of 22 digits, and at most 2^-39 of the bound.
TEST(HalvesRewrite, KeepsTheDigitsOfFactors) {
  constexpr int64_t kRows = 40;
  DagBuilder b;
  const int x = b.Placeholder("x", {kRows, 16}), w = b.Placeholder("w", {16, 2});
  const int c = b.Reduce("c", {kRows, 2}, {16}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  const ComputeDag dag = testing::Bounded(b.Build({c}).value());
  Array rows(DType::kFloat32, {kRows, 16}), columns(DType::kFloat32, {16, 2});
  for (int64_t m = 0; m < kRows; ++m) rows.set(16 * m, std::ldexp(1.9999999, static_cast<int>(10 - m)));  // to 2^-29
  columns.set(0, 1.2345678);
  columns.set(1, -2047.9);
  const std::map<int, Array> inputs = {{x, rows}, {w, columns}};
  const ComputeDag rewritten = ApplyRewrite(dag, {"halves", {}}).value();
  const std::vector<int> placeholders = rewritten.inputs();
  const Array want = Interpret(dag, inputs).value()[0],
              got = Interpret(rewritten, {{placeholders[0], rows}, {placeholders[1], columns}}).value()[0];
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double factor = std::abs(columns.at(i % 2)),
                 allowed = std::abs(want.at(i)) * 0x1p-20 + factor * 2048 * 0x1p-39;
    ASSERT_NEAR(got.at(i), want.at(i), allowed) << i;
  }
  // What exceeds its bound all the same is cut off there, and what is no number stays none.
  rows.set(0, 1e30);
  rows.set(16, std::nan(""));
  const Array beyond = Interpret(rewritten, {{placeholders[0], rows}, {placeholders[1], columns}}).value()[0];
  EXPECT_NEAR(beyond.at(0), 65504 / 16 * 1.2345678, 10);
  EXPECT_TRUE(std::isnan(beyond.at(2)));
}

TEST(HalvesRewrite, RefusesFactorsOfAnySize) {
  const auto why = [](const ComputeDag& dag) { return ApplyRewrite(dag, {"halves", {}}).status().ToString(); };
  const ComputeDag product = Product({8, 12, 20}, true, true);
  EXPECT_EQ(why(product), "INVALID_ARGUMENT: no halves rewrite: a factor may have elements of any size");
  for (const int64_t beyond : {int64_t{32769}, std::numeric_limits<int64_t>::max()}) {
    std::vector<Stage> stages = testing::Bounded(product).stages();
    stages[0].valid_max = beyond;
    stages[0].valid_min = std::numeric_limits<int64_t>::min();
    EXPECT_EQ(why(ComputeDag::Create(stages, product.outputs()).value()),
              "INVALID_ARGUMENT: no halves rewrite: a factor may have elements of any size");
  }
  EXPECT_EQ(why(testing::Bounded(Product({8, 12, 4097}, true, true))),
            "INVALID_ARGUMENT: no halves rewrite: its sums have 4097 terms, more than 4096");
  EXPECT_EQ(why(testing::Bounded(Convolution({}))),
            "INVALID_ARGUMENT: no halves rewrite: an operand has more elements than what it is made of");
  EXPECT_EQ(why(testing::Bounded(RowOfProducts(8, 16, 24, DType::kFloat16))),
            "INVALID_ARGUMENT: no halves rewrite: a factor is not in float32");
  EXPECT_THAT(why(testing::Bounded(testing::MaxPool(8, 4))),
              ::testing::StartsWith("INVALID_ARGUMENT: no halves rewrite: no gemm"));
}

TEST(StrassenRewrite, SavesAnEighthOfTheProductsALevel) {
  const ComputeDag dag = Product({64, 64, 64}, true, false);
  for (const auto& [levels, left] : std::vector<std::pair<int64_t, double>>{{1, 7.0 / 8}, {2, 49.0 / 64}}) {
    const Sums sums = SumsOf(ApplyRewrite(dag, DagRewrite{"strassen", {levels}}).value());
    EXPECT_EQ(sums.prologue, 1);  // the sums of w
    EXPECT_DOUBLE_EQ(sums.products / dag.flops(), left);
  }
}

TEST(StrassenRewrite, MayPayWhereProductsAreLarge) {
  constexpr double kH200 = 14;
  EXPECT_TRUE(StrassenMayPay(Product({2048, 2048, 2048}, false, false), 1, kH200));
  EXPECT_TRUE(StrassenMayPay(Product({2048, 2048, 2048}, false, true), 2, kH200));
  EXPECT_FALSE(StrassenMayPay(Product({1024, 1024, 1024}, false, false), 1, kH200));
  EXPECT_FALSE(StrassenMayPay(Product({1024, 1024, 1024}, false, false), 2, kH200));
  EXPECT_FALSE(StrassenMayPay(Product({16384, 256, 256}, true, false), 1, kH200));
  EXPECT_FALSE(StrassenMayPay(Product({4095, 4096, 4096}, false, false), 1, kH200)) << "does not apply";
  // The sums of constants cost nothing at run time.
  EXPECT_FALSE(StrassenMayPay(Product({1024, 2048, 2048}, false, false), 1, kH200));
  EXPECT_TRUE(StrassenMayPay(Product({1024, 2048, 2048}, true, false), 1, kH200));
}

TEST(StrassenRewrite, RefusesWhatItCannotCut) {
  auto why = [](const ComputeDag& dag, std::vector<int64_t> levels) {
    return ApplyRewrite(dag, DagRewrite{"strassen", levels}).status().ToString();
  };
  EXPECT_EQ(why(Product({8, 8, 8}, false, false), {3}),
            "INVALID_ARGUMENT: no strassen rewrite: levels are 1 or 2, not 3");
  EXPECT_EQ(why(Product({8, 10, 8}, false, false), {2}),
            "INVALID_ARGUMENT: no strassen rewrite: 4 does not divide its n of 10");
  EXPECT_EQ(why(Product({8, 8, 8}, false, false, DType::kFloat64), {1}),
            "INVALID_ARGUMENT: no strassen rewrite: a factor is not in float32");
  DagBuilder b;
  const int x = b.Placeholder("x", {2, 4, 4}), w = b.Placeholder("w", {2, 4, 4});
  const int c = b.Reduce("c", {2, 4, 4}, {4}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], i[1], r[0]}), b.At(w, {i[0], r[0], i[2]}));
  });
  EXPECT_EQ(why(b.Build({c}).value(), {1}), "INVALID_ARGUMENT: no strassen rewrite: the product has a batch");
  const ComputeDag pool = [] {
    DagBuilder d;
    const int v = d.Placeholder("v", {8, 8});
    return d.Build({d.Reduce("m", {8}, {8}, Combiner::kMax,
                             [&](auto& i, auto& r) {
                               return d.At(v, {i[0], r[0]});
                             })})
        .value();
  }();
  EXPECT_EQ(why(pool, {1}),
            "INVALID_ARGUMENT: no strassen rewrite: no gemm rewrite: the reduction is no sum of products");
}

}  // namespace
}  // namespace diapason
