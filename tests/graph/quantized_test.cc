// Products between dequantize and quantize become integer arithmetic, and compute what they did within a step of the
// quantised type.
#include "compiler/graph/passes/quantized.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "compiler/graph/passes.h"
#include "tests/graph/testing.h"

namespace diapason {
namespace {

Array Integers(const TensorType& type, uint64_t seed, int64_t low, int64_t high) {
  WeightRandom random(seed);
  Array array(type.dtype, type.shape);
  for (int64_t i = 0, n = array.elements(); i < n; ++i)
    array.set_int(i, low + static_cast<int64_t>(random.Next() % (high - low + 1)));
  return array;
}

struct QuantizedBuilder : GraphBuilder {
  int Bytes(Ints shape, DType dtype = DType::kUint8) {
    return n.AddInput("q" + std::to_string(n.inputs.size()), {dtype, std::move(shape)});
  }
  int Weights(Ints shape) {
    return n.AddConstant("w", Integers({DType::kInt8, std::move(shape)}, n.tensors.size(), -127, 127));
  }
  int Scale(std::vector<float> values, Ints shape = {}) {
    return n.AddConstant("scale", Array::FromFloats(std::move(shape), values));
  }
  int Zero(int64_t value, DType dtype = DType::kUint8) {
    Array zero(dtype, {});
    zero.set_int(0, value);
    return n.AddConstant("zero", std::move(zero));
  }
  int Dequantize(int q, int scale, int zero = -1) {
    return Op("dequantize", zero < 0 ? std::vector{q, scale} : std::vector{q, scale, zero});
  }
  int Quantize(int x, float scale, int64_t zero) {
    return Op("quantize", {x, Scale({scale}), Zero(zero)},
              {{"to", std::string("uint8")}, {"min", 0.0}, {"max", 255.0}});
  }
};

std::vector<Array> RandomBytes(const Network& network) {
  std::vector<Array> inputs;
  for (int id : network.inputs) {
    const TensorType& type = network.tensor(id).type;
    if (IsFloat(type.dtype)) {
      inputs.push_back(RandomArray(type, 5 + id));
    } else {
      inputs.push_back(
          Integers(type, 5 + id, type.dtype == DType::kInt8 ? -128 : 0, type.dtype == DType::kInt8 ? 127 : 255));
    }
  }
  return inputs;
}

// The network after the pass, which computes the same: integers but for ties that float32 rounds in another direction.
Network Fused(const Network& before) {
  Network after = before;
  EXPECT_TRUE(FuseQuantized(after).ok());
  EXPECT_TRUE(after.Validate().ok()) << after.Validate();
  EXPECT_EQ(CountOps(after, "quantize") + CountOps(after, "dequantize"), 0);
  const auto optimized = Optimize(before, {});
  EXPECT_TRUE(optimized.ok()) << optimized.status();
  for (const Network* network : {static_cast<const Network*>(&after), &*optimized}) {
    const std::vector<Array> inputs = RandomBytes(before);
    const auto want = EvaluateNetwork(before, inputs), got = EvaluateNetwork(*network, inputs);
    EXPECT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    for (size_t o = 0; o < want->size(); ++o) {
      const Array &x = (*got)[o], &y = (*want)[o];
      EXPECT_EQ(x.dtype, y.dtype);
      EXPECT_EQ(x.shape, y.shape);
      EXPECT_EQ(network->tensor(network->outputs[o]).name, before.tensor(before.outputs[o]).name);
      int64_t differ = 0;
      double most = 0;
      for (int64_t i = 0; i < y.elements(); ++i) {
        const double apart = std::abs(x.at(i) - y.at(i));
        EXPECT_LE(apart, IsFloat(y.dtype) ? 1e-4 * (1 + std::abs(y.at(i))) : 1);
        differ += !IsFloat(y.dtype) && apart != 0;
        most = std::max(most, std::abs(y.at(i)));
      }
      EXPECT_LE(differ, y.elements() / 50);
      EXPECT_GT(most, 0);
    }
  }
  return after;
}

TEST(FuseQuantized, AConvolutionIsOneOfIntegersWithItsScaleBehindIt) {
  QuantizedBuilder b;
  const int x = b.Dequantize(b.Bytes({1, 6, 7, 7}), b.Scale({0.02f}), b.Zero(117));
  const std::vector<float> scales = {0.01f, 0.02f, 0.005f, 0.03f},
                           products = {0.02f * 0.01f, 0.02f * 0.02f, 0.02f * 0.005f, 0.02f * 0.03f};
  const int w = b.Dequantize(b.Weights({4, 6, 3, 3}), b.Scale(scales, {4, 1, 1, 1}), b.Zero(0, DType::kInt8));
  const int bias =
      b.Dequantize(b.n.AddConstant("bias", Integers({DType::kInt32, {4}}, 3, -900, 900)), b.Scale(products, {4}));
  const int y = b.Op("relu", {b.Op("conv2d", {x, w, bias}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}})});
  const Network after = Fused(b.Out({b.Quantize(y, 0.0413f, 0)}));
  EXPECT_EQ(CountOps(after, "conv2d", DType::kInt32), 1);
  EXPECT_EQ(CountOps(after, "conv2d"), 1);
  EXPECT_EQ(CountOps(after, "add", DType::kInt32), 1);
  EXPECT_EQ(CountOps(after, "relu"), 0);  // clipping to uint8 around 0 does it
  EXPECT_EQ(CountOps(after, "mul"), 1);
  EXPECT_EQ(CountOps(after, "div"), 0);
}

TEST(FuseQuantized, AClipThatTheTypeDoesNotDoStays) {
  QuantizedBuilder b;
  const int x = b.Dequantize(b.Bytes({5, 16}), b.Scale({0.02f}), b.Zero(100));
  const int product = b.Op("matmul", {x, b.Dequantize(b.Weights({16, 9}), b.Scale({0.02f}))});
  const Network after = Fused(b.Out({b.Quantize(b.Op("clip", {product}, {{"min", 0.0}, {"max", 2.0}}), 0.0213f, 3)}));
  EXPECT_EQ(CountOps(after, "matmul", DType::kInt32), 1);
  EXPECT_EQ(CountOps(after, "clip"), 2);
}

TEST(FuseQuantized, ProductsOfActivationsAndOfTurnedWeights) {
  QuantizedBuilder b;
  const int x = b.Dequantize(b.Bytes({2, 5, 8}), b.Scale({0.02f}), b.Zero(128)),
            y = b.Dequantize(b.Bytes({2, 6, 8}, DType::kInt8), b.Scale({0.03f}));
  const int scores = b.Quantize(b.Op("matmul", {x, b.Op("transpose", {y}, {{"perm", Ints{0, 2, 1}}})}), 0.0517f, 128);
  const int rows = b.Op("reshape", {b.Dequantize(scores, b.Scale({0.0517f}), b.Zero(128))}, {{"shape", Ints{10, 6}}});
  const int w = b.Dequantize(b.Weights({4, 6}), b.Scale({0.01f, 0.02f, 0.03f, 0.01f}, {4, 1}));
  const int z = b.Op("gemm", {rows, w, b.Const({4})}, {{"trans_b", int64_t{1}}});
  const Network after = Fused(b.Out({z}));
  EXPECT_EQ(CountOps(after, "matmul", DType::kInt32), 1);
  EXPECT_EQ(CountOps(after, "gemm", DType::kInt32), 1);
  EXPECT_EQ(CountOps(after, "transpose", DType::kInt8), 1);
}

TEST(FuseQuantized, MovesAndMaximaStayInIntegers) {
  QuantizedBuilder b;
  const int q = b.Bytes({1, 4, 6, 6});
  const int x = b.Dequantize(q, b.Scale({0.02f}), b.Zero(9));
  const int pooled = b.Op("max_pool", {x}, {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  const int two = b.Concat({pooled, pooled}, 1);
  const Network after = Fused(
      b.Out({b.Quantize(b.Op("transpose", {two}, {{"perm", Ints{0, 2, 3, 1}}}), 0.02f, 9), b.Quantize(x, 0.02f, 9)}));
  EXPECT_EQ(after.nodes.size(), 5u);  // max_pool, concat, transpose, and identities with the names of the outputs
  for (const Node& node : after.nodes) EXPECT_EQ(after.tensor(node.output).type.dtype, DType::kUint8) << node.op;
}

// Of sums of integers, which are exact.
TEST(FuseQuantized, MeansAreTakenOfIntegersAndScaledOnce) {
  for (const auto& [op, attributes] : std::vector<std::pair<std::string, Attributes>>{
           {"avg_pool", Attributes({{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}})},
           {"avg_pool", Attributes({{"kernel", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}})},
           {"reduce_mean", Attributes({{"axes", Ints{2, 3}}, {"keepdims", int64_t{1}}})}}) {
    QuantizedBuilder b;
    const int x = b.Dequantize(b.Bytes({1, 4, 6, 6}), b.Scale({0.02f}), b.Zero(9));
    const int mean = b.Op(op, {x}, attributes);
    const Network after = Fused(b.Out({b.Quantize(mean, 0.0317f, 4), b.Op("relu", {mean})}));
    // What is pooled or reduced is whole.
    for (const Node& node : after.nodes)
      for (const Node& reader : after.nodes)
        EXPECT_FALSE(node.op == "mul" && reader.op == op && reader.inputs[0] == node.output) << op;
    EXPECT_EQ(CountOps(after, op), 1);
    EXPECT_EQ(CountOps(after, "div"), 0);
  }
}

// Interpolation between elements along two axes, and sums of tensors of one scale.
TEST(FuseQuantized, LinearFunctionsOfOneScaleAreScaledOnce) {
  QuantizedBuilder b;
  const auto taken = [&](int x, int64_t axis, const std::vector<int64_t>& places, const std::vector<float>& weights) {
    Array indices(DType::kInt64, {5});
    for (int i = 0; i < 5; ++i) indices.set_int(i, places[i]);
    const int part = b.Op("gather", {x, b.n.AddConstant("places", indices)}, {{"axis", axis}});
    return b.Op("mul",
                {part, b.n.AddConstant("weights", Array::FromFloats(axis == 1 ? Ints{5, 1} : Ints{5}, weights))});
  };
  const auto between = [&](int x, int64_t axis) {
    return b.Op("add", {taken(x, axis, {0, 1, 2, 3, 4}, {0.25, 0.75, 0.25, 0.75, 0.25}),
                        taken(x, axis, {1, 2, 3, 4, 5}, {0.75, 0.25, 0.75, 0.25, 0.75})});
  };
  const int x = b.Dequantize(b.Bytes({5, 6, 6}), b.Scale({0.02f}), b.Zero(9));
  const Network after = Fused(b.Out({b.Quantize(between(between(x, 1), 2), 0.0217f, 9)}));
  EXPECT_EQ(CountOps(after, "gather", DType::kUint8), 2);
  EXPECT_EQ(CountOps(after, "mul"), 5);  // by weights, and by the quotient of scales
  EXPECT_EQ(CountOps(after, "div"), 0);
  // Not by numbers that are no weights: they may be too large for what is not yet scaled.
  QuantizedBuilder d;
  const int y = d.Dequantize(d.Bytes({5, 6, 6}), d.Scale({0.02f}), d.Zero(9));
  EXPECT_EQ(CountOps(Fused(d.Out({d.Quantize(d.Op("mul", {y, d.Scale({3})}), 0.0517f, 9)})), "div"), 1);
  // Another scale: in float32.
  QuantizedBuilder c;
  const int p = c.Dequantize(c.Bytes({5, 4, 6}), c.Scale({0.02f}), c.Zero(9));
  const int q = c.Dequantize(c.Bytes({5, 4, 6}), c.Scale({0.03f}), c.Zero(9));
  EXPECT_EQ(CountOps(Fused(c.Out({c.Quantize(c.Op("add", {p, q}), 0.0517f, 9)})), "div"), 1);
}

// A squeeze that names no axes takes those of the tensor, of which the scale has more.
TEST(FuseQuantized, AScaleOfEachRowIsSqueezedAsTheTensorIs) {
  for (int64_t columns : {3, 5}) {
    QuantizedBuilder b;
    const int x = b.Dequantize(b.Bytes({1, 3, columns, 1}), b.Scale({0.02f, 0.1f, 0.5f}, {1, 3, 1, 1}));
    const Network after = Fused(b.Out({b.Op("squeeze", {x})}));
    EXPECT_EQ(after.tensor(after.outputs[0]).type.shape, (Ints{3, columns}));
  }
}

TEST(FuseQuantized, WhatIsNotExactStaysFloat) {
  const auto product = [](const std::function<int(QuantizedBuilder&)>& left, int64_t depth) {
    QuantizedBuilder b;
    const int x = left(b);
    return Fused(b.Out({b.Op("matmul", {x, b.Dequantize(b.Weights({depth, 3}), b.Scale({1e-3f}))})}));
  };
  const auto bytes = [](int64_t depth) {
    return [depth](QuantizedBuilder& b) { return b.Dequantize(b.Bytes({2, depth}), b.Scale({1e-3f}), b.Zero(128)); };
  };
  EXPECT_EQ(CountOps(product(bytes(1000), 1000), "matmul", DType::kInt32), 1);
  EXPECT_EQ(CountOps(product(bytes(80000), 80000), "matmul", DType::kFloat32), 1);  // sums beyond int32
  EXPECT_EQ(CountOps(product([](QuantizedBuilder& b) { return b.In({2, 8}); }, 8), "matmul", DType::kFloat32), 1);
  // A scale for each row of the sum.
  EXPECT_EQ(CountOps(product(
                         [](QuantizedBuilder& b) {
                           return b.Dequantize(b.Bytes({2, 4}), b.Scale({1, 2, 3, 4}, {4}));
                         },
                         4),
                     "matmul", DType::kFloat32),
            1);
  // A scale that is known at run time only.
  EXPECT_EQ(CountOps(product(
                         [](QuantizedBuilder& b) {
                           const int q = b.Bytes({2, 4});
                           return b.Dequantize(q, b.Op("reduce_max", {b.In({3})}, {{"keepdims", int64_t{0}}}));
                         },
                         4),
                     "matmul", DType::kFloat32),
            1);
}

TEST(FuseQuantized, WhatIsReadAsFloatTooIsComputedOnce) {
  QuantizedBuilder b;
  const int x = b.Dequantize(b.Bytes({5, 16}), b.Scale({0.02f}), b.Zero(100));
  const int product = b.Op("matmul", {x, b.Dequantize(b.Weights({16, 9}), b.Scale({0.02f}))});
  const Network after = Fused(b.Out({b.Quantize(product, 0.103f, 3), b.Op("tanh", {product}), product}));
  EXPECT_EQ(CountOps(after, "matmul"), 1);
}

TEST(FuseQuantized, LeavesOtherNetworksAlone) {
  GraphBuilder b;
  const Network before = b.Out({b.Op("relu", {b.Conv(b.In({1, 3, 5, 5}), 3, 4)})});
  Network after = before;
  ASSERT_TRUE(FuseQuantized(after).ok());
  EXPECT_EQ(after.ToString(), before.ToString());
}

TEST(NarrowFactors, AreReadInEightBits) {
  QuantizedBuilder b;
  const int x = b.Dequantize(b.Bytes({1, 6, 7, 7}), b.Scale({0.02f}), b.Zero(0));
  const int w = b.Dequantize(b.Weights({4, 6, 3, 3}), b.Scale({0.01f}), b.Zero(0, DType::kInt8));
  const auto after = Optimize(b.Out({b.Quantize(b.Op("conv2d", {x, w}, {{"pads", Ints{1, 1, 1, 1}}}), 0.04f, 0)}), {});
  ASSERT_TRUE(after.ok()) << after.status();
  const auto conv =
      std::find_if(after->nodes.begin(), after->nodes.end(), [](const Node& node) { return node.op == "conv2d"; });
  ASSERT_NE(conv, after->nodes.end());
  EXPECT_EQ(after->tensor(conv->inputs[0]).type.dtype, DType::kUint8);
  EXPECT_EQ(after->tensor(conv->inputs[1]).type.dtype, DType::kInt8);
  EXPECT_EQ(after->tensor(conv->output).type.dtype, DType::kInt32);
}

// Also where the left factor has a zero point: it is in a constant that is added to the sums, and around the image.
TEST(NarrowFactors, AreReadInEightBitsWithZeroPoints) {
  const auto of_bytes = [](const Network& network, const std::string& op, DType left, DType right) {
    const auto product =
        std::find_if(network.nodes.begin(), network.nodes.end(), [&](const Node& node) { return node.op == op; });
    ASSERT_NE(product, network.nodes.end());
    EXPECT_EQ(network.tensor(product->inputs[0]).type.dtype, left) << op;
    EXPECT_EQ(network.tensor(product->inputs[1]).type.dtype, right) << op;
    EXPECT_EQ(CountOps(network, "sub"), 0) << op;
    EXPECT_EQ(CountOps(network, "add", DType::kInt32), 1) << op;
  };
  for (const DType type : {DType::kUint8, DType::kInt8}) {
    const int64_t zero = type == DType::kUint8 ? 117 : -9;
    QuantizedBuilder b;
    const int x = b.Dequantize(b.Bytes({2, 6, 7, 9}, type), b.Scale({0.02f}), b.Zero(zero, type));
    const int w = b.Dequantize(b.Weights({4, 3, 3, 3}), b.Scale({0.01f}), b.Zero(0, DType::kInt8));
    // One with a bias, which takes the offset, and one without.
    std::vector<int> inputs{x, w};
    if (type == DType::kInt8)
      inputs.push_back(
          b.Dequantize(b.n.AddConstant("bias", Integers({DType::kInt32, {4}}, 3, -900, 900)), b.Scale({0.0002f})));
    const int y = b.Op("conv2d", inputs, {{"pads", Ints{1, 0, 2, 1}}, {"group", int64_t{2}}});
    const Network before = b.Out({b.Quantize(y, 0.06f, 100)});
    Fused(before);
    const auto after = Optimize(before, {});
    ASSERT_TRUE(after.ok()) << after.status();
    of_bytes(*after, "conv2d", type, DType::kInt8);
  }
  for (const int64_t turned : {0, 1}) {
    QuantizedBuilder b;
    const int x = b.Dequantize(b.Bytes({5, 16}), b.Scale({0.02f}), b.Zero(100));
    const int w =
        b.Dequantize(b.Weights(turned ? Ints{9, 16} : Ints{16, 9}), b.Scale({0.02f}), b.Zero(0, DType::kInt8));
    const Network before = b.Out({b.Quantize(b.Op("gemm", {x, w}, {{"trans_b", turned}}), 0.05f, 128)});
    Fused(before);
    const auto after = Optimize(before, {});
    ASSERT_TRUE(after.ok()) << after.status();
    of_bytes(*after, "gemm", DType::kUint8, DType::kInt8);
  }
}

// Also where the zero point is known at run time only: it is multiplied by the sums of the weights' columns.
TEST(NarrowFactors, AreReadInEightBitsWithZeroPointsThatAreComputed) {
  const auto cast = [](QuantizedBuilder& b, int x) { return b.Op("cast", {x}, {{"to", std::string("int32")}}); };
  for (const DType type : {DType::kUint8, DType::kInt8}) {
    QuantizedBuilder b;
    const int zero = cast(b, b.Bytes({}, type));
    const int x = b.Op("sub", {cast(b, b.Bytes({2, 5, 16}, type)), zero}),
              image = b.Op("sub", {cast(b, b.Bytes({1, 6, 7, 9}, type)), zero});
    const int w = cast(b, b.Weights({16, 9})), window = cast(b, b.Weights({4, 6, 3, 3}));
    const Network before = b.Out({b.Op("matmul", {x, w}), b.Op("conv2d", {image, window}),
                                  b.Op("conv2d", {image, window}, {{"pads", Ints{1, 1, 1, 1}}})});
    const auto after = Optimize(before, {});
    ASSERT_TRUE(after.ok()) << after.status();
    std::vector<DType> left;
    for (const Node& node : after->nodes)
      if (node.op == "matmul" || node.op == "conv2d") left.push_back(after->tensor(node.inputs[0]).type.dtype);
    EXPECT_THAT(left, ::testing::ElementsAre(type, type, DType::kInt32));  // around the last there is a zero point
    const std::vector<Array> inputs = RandomBytes(before);
    const auto want = EvaluateNetwork(before, inputs), got = EvaluateNetwork(*after, inputs);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    for (size_t o = 0; o < want->size(); ++o)
      for (int64_t i = 0; i < (*want)[o].elements(); ++i) ASSERT_EQ((*got)[o].int_at(i), (*want)[o].int_at(i));
  }
}

// An image's channels become a multiple of four.
TEST(NarrowFactors, HaveChannelsInGroupsOfFour) {
  QuantizedBuilder b;
  const int x = b.Dequantize(b.Bytes({2, 3, 9, 11}), b.Scale({0.02f}), b.Zero(117));
  const int w = b.Dequantize(b.Weights({8, 3, 5, 5}), b.Scale({0.01f}), b.Zero(0, DType::kInt8));
  const int y = b.Op("conv2d", {x, w}, {{"pads", Ints{2, 2, 2, 2}}, {"strides", Ints{2, 2}}});
  const Network before = b.Out({b.Quantize(y, 0.06f, 100)});
  Fused(before);
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    ModelOptions options;
    options.layout = layout;
    const auto after = Optimize(before, options);
    ASSERT_TRUE(after.ok()) << after.status();
    const auto conv =
        std::find_if(after->nodes.begin(), after->nodes.end(), [](const Node& node) { return node.op == "conv2d"; });
    ASSERT_NE(conv, after->nodes.end());
    EXPECT_EQ(after->tensor(conv->inputs[0]).type.shape[layout == Layout::kNHWC ? 3 : 1], 4);
  }
}

TEST(NarrowFactors, KeepWhatDoesNotFit) {
  GraphBuilder b;
  const auto product = [&](int64_t low, int64_t high) {
    const int x = b.n.AddInput("x", {DType::kInt32, {2, 3}});
    Array w(DType::kInt32, {3, 2});
    for (int i = 0; i < 6; ++i) w.set_int(i, i % 2 == 0 ? low : high);
    return b.Op("matmul", {x, b.n.AddConstant("w", std::move(w))});
  };
  Network network = b.Out({product(-128, 127), product(0, 255), product(-1, 128), product(0, 256)});
  ASSERT_TRUE(NarrowFactors(network).ok());
  ASSERT_TRUE(network.Validate().ok()) << network.Validate();
  const DType want[] = {DType::kInt8, DType::kUint8, DType::kInt32, DType::kInt32};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(network.tensor(network.nodes[i].inputs[1]).type.dtype, want[i]) << i;
}

}  // namespace
}  // namespace diapason
