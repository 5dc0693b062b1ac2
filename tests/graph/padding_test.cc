// Whether padding is shown to be harmless, and that it is: where it is proven, the padded network computes on its real
// part what the smaller one computes.
#include "compiler/graph/padding.h"

#include <functional>
#include <limits>
#include <map>

#include "testing.h"

namespace diapason {
namespace {

using Make = std::function<Network(int64_t)>;  // a network for a size of the symbol

struct Case {
  std::string symbol = "batch", mask;
  int64_t size = 6, other = 4, least = 3;
};

absl::StatusOr<PaddingProof> Prove(const Make& make, const Case& c) {
  return ProvePadding({c.symbol, make(c.size), c.size, make(c.other), c.other, c.least, c.mask});
}

std::string WhyNot(const Make& make, const Case& c = {}) { return std::string(Prove(make, c).status().message()); }

// Copies the part that both have, or of the smaller one all.
void CopyCommon(const Array& from, Array& to) {
  Ints index(from.shape.size(), 0);
  for (int64_t e = 0, n = from.elements(); e < n; ++e) {
    int64_t at = 0;
    bool inside = true;
    for (size_t d = 0; d < index.size(); ++d) {
      inside = inside && index[d] < to.shape[d];
      at = at * to.shape[d] + index[d];
    }
    if (inside) to.set(at, from.at(e));
    for (size_t d = index.size(); d-- > 0 && ++index[d] == from.shape[d];) index[d] = 0;
  }
}

// For every size that may be padded: what the network of that size computes is the common part of what the padded one
// computes.
void ExpectHarmless(const Make& make, const Case& c = {}) {
  const auto proven = Prove(make, c);
  ASSERT_TRUE(proven.ok()) << proven.status();
  for (int64_t real = c.least; real < c.size; ++real) {
    const Network small = make(real), large = make(c.size);
    std::vector<Array> inputs = RandomInputs(small, 3), padded = RandomInputs(large, 11);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (small.tensor(small.inputs[i]).name == c.mask) {
        for (int64_t e = 0; e < inputs[i].elements(); ++e) inputs[i].set(e, 1);
        for (int64_t e = 0; e < padded[i].elements(); ++e) padded[i].set(e, 0);
      }
      CopyCommon(inputs[i], padded[i]);
    }
    const auto want = EvaluateNetwork(small, inputs), got = EvaluateNetwork(large, padded);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t o = 0; o < want->size(); ++o) {
      const Array& all = (*got)[o];
      Ints shape = all.shape;
      for (const GrowingAxis& axis : proven->outputs[o]) shape[axis.axis] = real * axis.block;
      Array part(all.dtype, shape);
      CopyCommon(all, part);
      ExpectNear(part, (*want)[o], 1e-5);
    }
  }
}

TEST(Padding, RowsOfAClassifierAreApart) {
  const Make make = [](int64_t batch) {
    GraphBuilder b;
    const int x = b.In({batch, 3, 6, 6});
    const int y = b.Op("relu", {b.Conv(b.Op("avg_pool", {x}, {{"kernel", Ints{2, 2}}}), 3, 4)});
    const int flat = b.Op("flatten", {y});
    const int logits = b.Op("gemm", {flat, b.Const({4 * 5 * 5, 7}), b.Const({7})});
    return b.Out(
        {b.Op("softmax", {logits}), b.Op("reduce_max", {y}, {{"axes", Ints{2, 3}}, {"keepdims", int64_t{0}}})});
  };
  ExpectHarmless(make);
  EXPECT_EQ(Prove(make, {})->outputs[0], (std::vector<GrowingAxis>{{0, 1}}));
}

// The root of a sum of squares, as LpPool is read, and where maxima are.
TEST(Padding, ImagesAreApartInPools) {
  for (const char* volume : {"", "3d"}) {
    const bool deep = *volume != '\0';
    const auto image = [deep](int64_t batch) { return deep ? Ints{batch, 2, 3, 4, 5} : Ints{batch, 2, 4, 5}; };
    const Attributes window({{"kernel", deep ? Ints{2, 2, 2} : Ints{2, 2}}});
    const std::string suffix = volume;
    const Make make = [=](int64_t batch) {
      GraphBuilder b;
      const int x = b.In(image(batch));
      return b.Out({b.Op("sqrt", {b.Op("sum_pool" + suffix, {b.Op("mul", {x, x})}, window)}),
                    b.Op("max_pool" + suffix, {x}, window), b.Op("max_pool" + suffix + "_indices", {x}, window)});
    };
    ExpectHarmless(make);
    const auto proven = Prove(make, {});
    ASSERT_TRUE(proven.ok()) << proven.status();
    for (const auto& axes : proven->outputs) EXPECT_EQ(axes, (std::vector<GrowingAxis>{{0, 1}}));
    EXPECT_EQ(WhyNot([=](int64_t height) {
                GraphBuilder b;
                Ints shape = image(2);
                shape[shape.size() - 2] = height;
                return b.Out({b.Op("sum_pool" + suffix, {b.In(shape)}, {{"kernel", Ints(deep ? 3 : 2, 1)}})});
              }),
              "node 'sum_pool" + suffix + "_0' (sum_pool" + suffix +
                  ") combines values along 'batch', those of padding included");
  }
}

// As Mask R-CNN has them for the boxes that were found.
TEST(Padding, RegionsAreReadApart) {
  const auto make = [](int64_t images, int64_t regions) {
    GraphBuilder b;
    const int x = b.In({images, 2, 5, 5}), corners = b.In({regions, 4});
    const int of = b.n.AddConstant("of", Array(DType::kInt64, {regions}));
    return b.Out({b.Op("roi_align", {x, corners, of}, {{"size", Ints{2, 2}}, {"samples", int64_t{2}}}),
                  b.Op("roi_align", {x, corners, of}, {{"size", Ints{2, 2}}, {"samples", int64_t{0}}})});
  };
  ExpectHarmless([&](int64_t n) { return make(1, n); });
  EXPECT_EQ(WhyNot([&](int64_t n) { return make(n, 3); }),
            "node 'roi_align_0' (roi_align) combines values along 'batch', those of padding included");
}

// Heads move in front of the matrices and into the batch, as older exporters write it.
TEST(Padding, AnAxisMayBecomeABlockOfALargerOne) {
  const Make make = [](int64_t batch) {
    GraphBuilder b;
    const int x = b.In({batch, 5, 8});
    const int heads =
        b.Op("transpose", {b.Op("reshape", {x}, {{"shape", Ints{batch, 5, 2, 4}}})}, {{"perm", Ints{0, 2, 1, 3}}});
    const int flat = b.Op("reshape", {heads}, {{"shape", Ints{-1, 5, 4}}});
    const int scores = b.Op("softmax", {b.Op("matmul", {flat, b.Op("transpose", {flat}, {{"perm", Ints{0, 2, 1}}})})});
    return b.Out({b.Op("matmul", {scores, flat}),
                  b.Op("squeeze", {b.Op("slice", {x}, {{"starts", Ints{0}}, {"ends", Ints{1}}, {"axes", Ints{1}}})},
                       {{"axes", Ints{1}}})});
  };
  ExpectHarmless(make);
  EXPECT_EQ(Prove(make, {})->outputs[0], (std::vector<GrowingAxis>{{0, 2}}));
}

Make WithOp(const std::string& op, Attributes attributes) {
  return [=](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op(op, {b.In({batch, 4})}, attributes)});
  };
}

TEST(Padding, WhatMixesRowsIsRefused) {
  EXPECT_EQ(WhyNot(WithOp("softmax", {{"axis", int64_t{0}}})),
            "node 'softmax_0' (softmax) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot(WithOp("reduce_mean", {{"axes", Ints{0}}})),
            "node 'reduce_mean_0' (reduce_mean) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot(WithOp("reduce_sum", {})),
            "node 'reduce_sum_0' (reduce_sum) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot(WithOp("arg_max", {})),
            "node 'arg_max_0' (arg_max) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot(WithOp("layer_norm", {{"axis", int64_t{0}}})),
            "node 'layer_norm_0' (layer_norm) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot(WithOp("cumulative_sum", {{"axis", int64_t{0}}, {"reverse", int64_t{1}}})),
            "node 'cumulative_sum_0' (cumulative_sum) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot(WithOp("slice", {{"starts", Ints{-1}}, {"ends", Ints{100}}, {"axes", Ints{0}}})),
            "node 'slice_0' (slice) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot([](int64_t batch) {  // features and batch
              GraphBuilder b;
              return b.Out({b.Op("reshape", {b.In({4, batch})}, {{"shape", Ints{batch, 4}}})});
            }),
            "node 'reshape_0' (reshape) mixes 'batch' with other axes");
  EXPECT_EQ(WhyNot([](int64_t batch) {  // a matrix of rows by rows
              GraphBuilder b;
              const int x = b.In({batch, 4});
              return b.Out({b.Op("matmul", {b.Op("transpose", {x}), x})});
            }),
            "node 'matmul_1' (matmul) combines values along 'batch', those of padding included");
  EXPECT_EQ(WhyNot([](int64_t batch) {
              GraphBuilder b;
              return b.Out({b.Concat({b.In({batch, 4}), b.In({batch, 4})}, 0)});
            }),
            "node 'concat_0' (concat) combines values along 'batch', those of padding included");
}

// No row is mixed with another, and yet results change with the number of rows.
TEST(Padding, WhatDependsOnTheSizeItselfIsRefused) {
  const auto scaled = [](int64_t batch, Array factor) {
    GraphBuilder b;
    const int x = b.In({batch, 4});
    return b.Out({b.Op("mul", {x, b.n.AddConstant("factor", std::move(factor))})});
  };
  EXPECT_EQ(
      WhyNot([&](int64_t batch) { return scaled(batch, Array::FromFloats({}, {1.0f / static_cast<float>(batch)})); }),
      "the constant 'factor' has other values with batch=4");
  EXPECT_EQ(WhyNot([&](int64_t batch) {
              Array rows(DType::kFloat32, {batch, 1});
              for (int64_t i = 0; i < batch; ++i) rows.set(i, static_cast<double>(i) / static_cast<double>(batch));
              return scaled(batch, rows);
            }),
            "the constant 'factor' has other values with batch=4");
  ExpectHarmless([&](int64_t batch) { return scaled(batch, Counting({batch, 1})); });
  EXPECT_EQ(WhyNot([](int64_t batch) {
              GraphBuilder b;
              return b.Out({b.Op("clip", {b.In({batch, 4})}, {{"max", static_cast<double>(batch)}})});
            }),
            "attribute 'max' of node 'clip_0' (clip) depends on 'batch'");
  EXPECT_EQ(WhyNot([](int64_t batch) {  // multiples of 8, as windows want them
              GraphBuilder b;
              return b.Out({b.Op("pad", {b.In({batch, 4})}, {{"pads", Ints{0, 0, (8 - batch % 8) % 8, 0}}})});
            }),
            "attribute 'pads' of node 'pad_0' (pad) depends on 'batch'");
  EXPECT_EQ(WhyNot([](int64_t batch) {
              GraphBuilder b;
              return b.Out({b.Concat({b.In({batch, 4}), b.Const({1, 4})}, 0)});
            }),
            "an extent of tensor 'concat_0' is 7 with batch=6 and 5 with batch=4");
}

// Attention over `sequence` positions of which a mask says which are real.
Network Attention(int64_t sequence, const std::string& how) {
  GraphBuilder b;
  const int x = b.In({2, sequence, 4});
  const int mask = b.n.AddInput("mask", {DType::kFloat32, {2, sequence}});
  const auto constant = [&](double v) {
    Array one(DType::kFloat32, {});
    one.set(0, v);
    return b.n.AddConstant("v", std::move(one));
  };
  const int row = b.Op("unsqueeze", {mask}, {{"axes", Ints{1}}});
  int scores = b.Op("matmul", {x, b.Op("transpose", {x}, {{"perm", Ints{0, 2, 1}}})});
  if (how == "add") scores = b.Op("add", {scores, b.Op("mul", {b.Op("sub", {constant(1), row}), constant(-10000)})});
  if (how == "where") {
    const int real = b.Op("less", {constant(0.5), row});
    scores = b.Op("where", {real, scores, constant(-std::numeric_limits<double>::infinity())});
  }
  if (how == "weak") scores = b.Op("add", {scores, b.Op("sub", {row, constant(1)})});
  if (how == "causal") {
    Array causal(DType::kFloat32, {sequence, sequence});
    for (int64_t i = 0; i < sequence * sequence; ++i) causal.set(i, i % sequence > i / sequence ? -1e9 : 0);
    scores = b.Op("add", {scores, b.n.AddConstant("causal", std::move(causal))});
  }
  int weights = b.Op("softmax", {scores});
  if (how == "after") weights = b.Op("mul", {weights, row});
  const int y = b.Op("matmul", {weights, x});
  const int pooled = b.Op("reduce_sum", {b.Op("mul", {y, b.Op("unsqueeze", {mask}, {{"axes", Ints{2}}})})},
                          {{"axes", Ints{1}}, {"keepdims", int64_t{0}}});
  const int count = b.Op("reduce_sum", {mask}, {{"axes", Ints{1}}});
  return b.Out(how == "causal" ? std::vector<int>{y} : std::vector<int>{y, b.Op("div", {pooled, count})});
}

const Case kSequence = {"seq", "mask", 6, 4, 3};

TEST(Padding, AMaskKeepsPositionsOutOfAttention) {
  for (const char* how : {"add", "where"}) {
    SCOPED_TRACE(how);
    ExpectHarmless([&](int64_t n) { return Attention(n, how); }, kSequence);
  }
}

TEST(Padding, ACausalModelNeedsNoMask) {
  ExpectHarmless([](int64_t n) { return Attention(n, "causal"); }, {"seq", "", 6, 4, 3});
}

TEST(Padding, AMaskThatMasksNothingIsRefused) {
  const std::string refused = "node 'softmax_3' (softmax) combines values along 'seq', those of padding included";
  EXPECT_EQ(WhyNot([](int64_t n) { return Attention(n, "none"); }, kSequence), refused);
  EXPECT_EQ(WhyNot([](int64_t n) { return Attention(n, "after"); }, kSequence), refused);
  EXPECT_EQ(WhyNot([](int64_t n) { return Attention(n, "weak"); }, kSequence),
            "node 'softmax_5' (softmax) combines values along 'seq', those of padding included");
  // The same without saying which input is the mask.
  EXPECT_EQ(WhyNot([](int64_t n) { return Attention(n, "add"); }, {"seq", "", 6, 4, 3}),
            "node 'softmax_6' (softmax) combines values along 'seq', those of padding included");
}

// What newer exporters make of a mask: its elements are looked up by constant indices.
TEST(Padding, ConstantIndicesPointToTheirOwnPlace) {
  const auto make = [](int64_t n, int64_t shift) {
    GraphBuilder b;
    const int x = b.In({n, 4});
    const int mask = b.n.AddInput("mask", {DType::kFloat32, {1, n}});
    Array places(DType::kInt64, {n, 2});
    for (int64_t i = 0; i < n; ++i) places.set_int(2 * i + 1, shift == 0 ? i : std::max<int64_t>(i - shift, 0));
    const int looked_up = b.Op("gather_nd", {mask, b.n.AddConstant("places", std::move(places))});
    const int masked = b.Op("mul", {x, b.Op("unsqueeze", {looked_up}, {{"axes", Ints{1}}})});
    return b.Out({b.Op("reduce_sum", {masked}, {{"axes", Ints{0}}})});
  };
  ExpectHarmless([&](int64_t n) { return make(n, 0); }, kSequence);
  EXPECT_EQ(WhyNot([&](int64_t n) { return make(n, 1); }, kSequence),
            "node 'reduce_sum_3' (reduce_sum) combines values along 'seq', those of padding included");
}

// x masked and summed after `how` was done to it.
Network MaskedSum(int64_t n, const std::string& how) {
  GraphBuilder b;
  const int x = b.In({n, 4}), mask = b.n.AddInput("mask", {DType::kFloat32, {n, 1}});
  const auto constant = [&](double v) {
    Array one(DType::kFloat32, {});
    one.set(0, v);
    return b.n.AddConstant("v", std::move(one));
  };
  const auto mean = [&](int v) { return b.Op("reduce_mean", {v}, {{"axes", Ints{1}}}); };
  const int centred = b.Op("sub", {x, mean(x)}), variance = mean(b.Op("mul", {centred, centred}));
  int y = x;
  if (how == "reciprocal") y = b.Op("div", {x, mask});
  if (how == "log") y = b.Op("log", {b.Op("add", {b.Op("mul", {x, x}), mask})});
  if (how == "exp") y = b.Op("exp", {x});
  if (how == "normalised") y = b.Op("div", {centred, b.Op("sqrt", {variance})});
  if (how == "normalised with epsilon")
    y = b.Op("div", {centred, b.Op("sqrt", {b.Op("add", {variance, constant(1e-5)})})});
  if (how == "bounded") y = b.Op("exp", {b.Op("clip", {x}, {{"max", 10.0}})});
  if (how == "chosen")
    y = b.Op("where", {b.Op("less", {constant(0.5), mask}), b.Op("log", {b.Op("abs", {x})}), constant(0)});
  if (how == "divided by itself") y = b.Op("div", {x, b.Op("maximum", {b.Op("abs", {x}), constant(1e-6)})});
  const int masked = how == "chosen" ? y : b.Op("mul", {y, mask});
  return b.Out({b.Op("reduce_sum", {masked}, {{"axes", Ints{0}}}), b.Op("matmul", {b.Op("transpose", {mask}), y})});
}

TEST(Padding, ZeroTimesInfinityIsNoZero) {
  for (const char* how : {"none", "normalised with epsilon", "bounded", "divided by itself"}) {
    SCOPED_TRACE(how);
    ExpectHarmless([&](int64_t n) { return MaskedSum(n, how); }, kSequence);
    EXPECT_FALSE(Prove([&](int64_t n) { return MaskedSum(n, how); }, kSequence)->needs_first);
  }
  for (const auto& [how, sum] :
       std::map<std::string, std::string>{{"reciprocal", "6"}, {"log", "8"}, {"exp", "6"}, {"normalised", "7"}}) {
    SCOPED_TRACE(how);
    EXPECT_EQ(WhyNot([&, how = how](int64_t n) { return MaskedSum(n, how); }, kSequence),
              "node 'reduce_sum_" + sum + "' (reduce_sum) combines values along 'seq', those of padding included");
  }
}

// Its own zeros at the padding are known, whatever else it has.
TEST(Padding, WhatIsChosenByTheMaskNeedsNoFiniteRest) {
  ExpectHarmless([&](int64_t n) { return MaskedSum(n, "chosen"); }, kSequence);
}

TEST(Padding, ProductsOfMatricesWantFiniteFactorsToo) {
  const auto make = [](int64_t n, const char* op) {
    GraphBuilder b;
    const int x = b.In({n, 4}), mask = b.n.AddInput("mask", {DType::kFloat32, {1, n}});
    return b.Out({b.Op("matmul", {mask, b.Op(op, {x})})});
  };
  ExpectHarmless([&](int64_t n) { return make(n, "tanh"); }, kSequence);
  EXPECT_EQ(WhyNot([&](int64_t n) { return make(n, "reciprocal"); }, kSequence),
            "node 'matmul_1' (matmul) multiplies zeros of padding along 'seq' by values that may be infinite");
}

// Low values count only beside one that is not, exact -inf always.
TEST(Padding, LowValuesRestOnARealPosition) {
  const auto needs = [](const char* how) {
    return Prove([&](int64_t n) { return Attention(n, how); }, kSequence)->needs_first;
  };
  EXPECT_TRUE(needs("add"));
  EXPECT_FALSE(needs("where"));
  // A constant mask that leaves a row nothing but low values, before the padding: what lies behind counts as much.
  const auto banded = [](int64_t n, double low) {
    GraphBuilder b;
    const int x = b.In({2, n, 4});
    Array mask(DType::kFloat32, {n, n});
    for (int64_t i = 0; i < n * n; ++i) mask.set(i, i % n > i / n || i % n == 0 ? low : 0);
    const int scores = b.Op("matmul", {x, b.Op("transpose", {x}, {{"perm", Ints{0, 2, 1}}})});
    return b.Out(
        {b.Op("matmul", {b.Op("softmax", {b.Op("add", {scores, b.n.AddConstant("mask", std::move(mask))})}), x})});
  };
  EXPECT_EQ(WhyNot([&](int64_t n) { return banded(n, -1e9); }, {"seq", "", 6, 4, 3}),
            "node 'softmax_3' (softmax) combines values along 'seq', those of padding included");
}

TEST(Padding, FixedPlacesMustBeRealAtEverySize) {
  const auto take = [](int64_t place) {
    return [place](int64_t n) {
      GraphBuilder b;
      Array index(DType::kInt64, {});
      index.set_int(0, place);
      return b.Out(
          {b.Op("gather", {b.In({2, n, 4}), b.n.AddConstant("place", std::move(index))}, {{"axis", int64_t{1}}})});
    };
  };
  ExpectHarmless(take(2), kSequence);
  const std::string refused = "node 'gather_0' (gather) takes elements from places on 'seq' that may be padding";
  EXPECT_EQ(WhyNot(take(3), kSequence), refused);
  EXPECT_EQ(WhyNot(take(-1), kSequence), refused);
}

// The mask of each box's class, as the older exporter of PyTorch writes x[arange(n), labels].
TEST(Padding, AnElementOfTheOwnRowMayBeChosen) {
  const auto make = [](int64_t n, int64_t step, int64_t classes) {
    GraphBuilder b;
    const int masks = b.Op("reshape", {b.In({n, 4, 3})}, {{"shape", Ints{4 * n, 3}}});
    Array rows(DType::kInt64, {n});
    for (int64_t i = 0; i < n; ++i) rows.set_int(i, step * i);
    const int label = b.Op("arg_max", {b.In({n, classes})}, {{"axis", int64_t{1}}});
    const int index = b.Op("add", {b.Op("reshape", {label}, {{"shape", Ints{n}}}), b.n.AddConstant("rows", rows)});
    return b.Out({b.Op("gather", {masks, index})});
  };
  ExpectHarmless([&](int64_t n) { return make(n, 4, 4); });
  EXPECT_EQ(Prove([&](int64_t n) { return make(n, 4, 4); }, {})->outputs[0], (std::vector<GrowingAxis>{{0, 1}}));
  const std::string refused = "node 'gather_4' (gather) takes elements from places on 'batch' that may be padding";
  EXPECT_EQ(WhyNot([&](int64_t n) { return make(n, 3, 4); }), refused);  // of other rows
  EXPECT_EQ(WhyNot([&](int64_t n) { return make(n, 4, 5); }), refused);  // of the next row, sometimes
  const auto wraps = [](int64_t n) {
    GraphBuilder b;
    Array rows(DType::kInt64, {n});
    for (int64_t i = 0; i < n; ++i) rows.set_int(i, 100 * i);
    const int label = b.Op("arg_max", {b.In({n, 4})}, {{"axis", int64_t{1}}});
    const int index = b.Op("add", {b.Op("reshape", {label}, {{"shape", Ints{n}}}), b.n.AddConstant("rows", rows)});
    const int narrow = b.Op("cast", {index}, {{"to", std::string("int8")}});
    const int wide = b.Op("cast", {narrow}, {{"to", std::string("int64")}});
    return b.Out({b.Op("gather", {b.In({100 * n}), wide})});
  };
  EXPECT_EQ(WhyNot(wraps),  // 100 * 2 is no int8
            "node 'gather_5' (gather) takes elements from places on 'batch' that may be padding");
}

}  // namespace
}  // namespace diapason
