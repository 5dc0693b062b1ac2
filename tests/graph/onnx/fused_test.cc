// Operators of ONNX Runtime's own domain are what ONNX's operators compute that they stand for.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../testing.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

using NodeAttributes = std::vector<std::pair<std::string, OnnxValue>>;

Array RandomFloats(Ints shape, uint64_t seed) { return RandomArray({DType::kFloat32, std::move(shape)}, seed); }

ModelBuilder RuntimeModel() {
  ModelBuilder model(17);
  model.proto().add_opset_import()->set_domain("com.microsoft");
  model.proto().mutable_opset_import(1)->set_version(1);
  return model;
}

// A node of ONNX Runtime's domain.
void AddFused(ModelBuilder& model, const std::string& op, const std::vector<std::string>& inputs,
              const NodeAttributes& attributes = {}) {
  model.Node(op, inputs, {"y"}, attributes);
  model.proto().mutable_graph()->mutable_node()->rbegin()->set_domain("com.microsoft");
  model.Output("y");
}

void ExpectEqualModels(const ModelBuilder& fused, const ModelBuilder& plain, const std::vector<Array>& inputs,
                       double tolerance = 1e-5) {
  const auto a = fused.Import(), b = plain.Import();
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  const auto got = EvaluateNetwork(*a, inputs), want = EvaluateNetwork(*b, inputs);
  ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
  ExpectNear((*got)[0], (*want)[0], tolerance);
}

TEST(Fused, GemmHasItsActivationBehindIt) {
  for (const auto& [activation, numbers, attributes] :
       std::vector<std::tuple<std::string, NodeAttributes, NodeAttributes>>{
           {"Relu", {}, {}},
           {"Tanh", {}, {}},
           {"LeakyRelu", {{"activation_alpha", 0.3f}}, {{"alpha", 0.3f}}},
           {"HardSigmoid",
            {{"activation_alpha", 0.3f}, {"activation_beta", 0.4f}},
            {{"alpha", 0.3f}, {"beta", 0.4f}}}}) {
    SCOPED_TRACE(activation);
    const auto base = [] {
      ModelBuilder m = RuntimeModel();
      m.Input("x", {3, 4}).Initializer("w", RandomFloats({5, 4}, 1)).Initializer("b", RandomFloats({5}, 2));
      return m;
    };
    NodeAttributes product = {{"transB", int64_t{1}}, {"alpha", 0.5f}};
    ModelBuilder plain = base();
    plain.Node("Gemm", {"x", "w", "b"}, {"sum"}, product).Node(activation, {"sum"}, {"y"}, attributes).Output("y");
    product.push_back({"activation", activation.c_str()});
    product.insert(product.end(), numbers.begin(), numbers.end());
    ModelBuilder fused = base();
    AddFused(fused, "FusedGemm", {"x", "w", "b"}, product);
    ExpectEqualModels(fused, plain, {RandomFloats({3, 4}, 3)});
  }
}

// Operands are 2x5x3x4 and 2x5x4x6 once their axes are in MatMul's order.
TEST(Fused, OperandsOfAProductMayHaveTheirAxesInOtherOrders) {
  const auto axes = [](bool batch, bool last) {
    if (batch) return last ? Ints{3, 0, 1, 2} : Ints{2, 0, 1, 3};
    return last ? Ints{0, 1, 3, 2} : Ints{0, 1, 2, 3};
  };
  // Where MatMul's axes are in the operand.
  const auto back = [](const Ints& stored) {
    Ints perm(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) perm[stored[i]] = static_cast<int64_t>(i);
    return perm;
  };
  const Ints left = {2, 5, 3, 4}, right = {2, 5, 4, 6};
  for (int flags = 0; flags < 16; ++flags) {
    SCOPED_TRACE(flags);
    const bool a = flags & 1, b = flags & 2, batch_a = flags & 4, batch_b = flags & 8;
    const Ints of_a = axes(batch_a, a), of_b = axes(batch_b, b);
    Ints shape_a, shape_b;
    for (int64_t d : of_a) shape_a.push_back(left[d]);
    for (int64_t d : of_b) shape_b.push_back(right[d]);
    const auto base = [&] {
      ModelBuilder m = RuntimeModel();
      m.Input("a", {shape_a.begin(), shape_a.end()}).Input("b", {shape_b.begin(), shape_b.end()});
      return m;
    };
    ModelBuilder plain = base(), fused = base();
    plain.Node("Transpose", {"a"}, {"ta"}, {{"perm", back(of_a)}});
    plain.Node("Transpose", {"b"}, {"tb"}, {{"perm", back(of_b)}});
    plain.Initializer("half", Array::FromFloats({}, {0.5f})).Node("MatMul", {"ta", "tb"}, {"p"});
    plain.Node("Mul", {"p", "half"}, {"y"}).Output("y");
    AddFused(fused, "FusedMatMul", {"a", "b"},
             {{"alpha", 0.5f},
              {"transA", int64_t{a}},
              {"transB", int64_t{b}},
              {"transBatchA", int64_t{batch_a}},
              {"transBatchB", int64_t{batch_b}}});
    ExpectEqualModels(fused, plain, {RandomFloats(shape_a, 1), RandomFloats(shape_b, 2)});
  }
}

TEST(Fused, NormalizedSumsHaveTheirStatistics) {
  // Sums 1, 3 and 2, -2: mean 2 and variance 1, mean 0 and variance 4; root mean squares sqrt(5) and 2.
  const Array x = Array::FromFloats({1, 2, 2}, {0, 1, 1, -1}), skip = Array::FromFloats({1, 2, 2}, {1, 2, 1, -1});
  const Array sum = Array::FromFloats({1, 2, 2}, {1, 3, 2, -2});
  for (const bool centred : {true, false}) {
    ModelBuilder model = RuntimeModel();
    model.Input("x", {1, 2, 2}).Input("skip", {1, 2, 2}).Initializer("scale", Array::FromFloats({2}, {1, 10}));
    model.Node(centred ? "SkipLayerNormalization" : "SkipSimplifiedLayerNormalization", {"x", "skip", "scale"},
               {"y", centred ? "mean" : "", "inverse", "sum"}, {{"epsilon", 0.f}});
    model.proto().mutable_graph()->mutable_node()->rbegin()->set_domain("com.microsoft");
    model.Output("y").Output("inverse").Output("sum");
    if (centred) model.Output("mean");
    const auto network = model.Import();
    ASSERT_TRUE(network.ok()) << network.status();
    const auto got = EvaluateNetwork(*network, {x, skip});
    ASSERT_TRUE(got.ok()) << got.status();
    const float root = 1 / std::sqrt(5.f);
    ExpectNear((*got)[0],
               Array::FromFloats({1, 2, 2}, centred ? std::vector<float>{-1, 10, 1, -10}
                                                    : std::vector<float>{root, 30 * root, 1, -10}),
               1e-5);
    ExpectNear((*got)[1], Array::FromFloats({1, 2, 1}, {centred ? 1 : root, 0.5f}), 1e-6);
    ExpectNear((*got)[2], sum, 0);
    if (centred) ExpectNear((*got)[3], Array::FromFloats({1, 2, 1}, {2, 0}), 0);
  }
}

TEST(Fused, AnActivationThatIsNotKnownIsNamed) {
  ModelBuilder fused = RuntimeModel();
  fused.Input("x", {3, 4}).Initializer("w", RandomFloats({4, 5}, 1));
  AddFused(fused, "FusedGemm", {"x", "w"}, {{"activation", "Square"}});
  EXPECT_EQ(
      std::string(fused.Import().status().message()),
      "cannot import 'model.onnx': node 'node_y' (com.microsoft.FusedGemm of opset 1): activation 'Square' is not "
      "known");
}

TEST(Fused, QueriesKeysAndValuesMayBeInOneTensor) {
  constexpr int64_t kLength = 3, kHeads = 2, kSize = 4;
  const Array all = RandomFloats({1, kLength, kHeads, 3, kSize}, 1);
  std::vector<Array> apart(3, Array(DType::kFloat32, {1, kLength, kHeads * kSize}));
  Array pair(DType::kFloat32, {1, kLength, kHeads, 2, kSize});
  for (int64_t i = 0; i < kLength * kHeads; ++i) {
    for (int64_t part = 0; part < 3; ++part) {
      for (int64_t e = 0; e < kSize; ++e) {
        const double value = all.at((i * 3 + part) * kSize + e);
        apart[part].set(i * kSize + e, value);
        if (part > 0) pair.set((i * 2 + part - 1) * kSize + e, value);
      }
    }
  }
  const NodeAttributes heads = {{"num_heads", kHeads}};
  ModelBuilder plain = RuntimeModel(), packed = RuntimeModel(), two = RuntimeModel();
  for (const char* name : {"q", "k", "v"}) plain.Input(name, {1, kLength, kHeads * kSize});
  AddFused(plain, "MultiHeadAttention", {"q", "k", "v"}, heads);
  packed.Input("qkv", {1, kLength, kHeads, 3, kSize});
  AddFused(packed, "MultiHeadAttention", {"qkv"}, heads);
  two.Input("q", {1, kLength, kHeads * kSize}).Input("kv", {1, kLength, kHeads, 2, kSize});
  AddFused(two, "MultiHeadAttention", {"q", "kv"}, heads);
  const auto want = EvaluateNetwork(plain.Import().value(), apart);
  const auto of_packed = packed.Import(), of_two = two.Import();
  ASSERT_TRUE(of_packed.ok() && of_two.ok()) << of_packed.status() << of_two.status();
  ExpectNear((*EvaluateNetwork(*of_packed, {all}))[0], (*want)[0], 1e-6);
  ExpectNear((*EvaluateNetwork(*of_two, {apart[0], pair}))[0], (*want)[0], 1e-6);
}

TEST(Fused, ProjectionsOfAQuantizedAttentionAreIntegers) {
  const auto base = [] {
    ModelBuilder m = RuntimeModel();
    m.Input("x", {2, 3, 8}, DType::kUint8).Initializer("w", RandomIntegers(DType::kInt8, {8, 24}, 1));
    m.Initializer("b", RandomFloats({24}, 2)).Initializer("x_s", Array::FromFloats({}, {0.02f}));
    m.Initializer("x_z", OneInteger(DType::kUint8, 120)).Initializer("w_s", Array::FromFloats({}, {0.01f}));
    m.Initializer("w_z", OneInteger(DType::kInt8, 3));
    Array lengths(DType::kInt32, {2});
    lengths.set_int(0, 2);
    lengths.set_int(1, 3);
    m.Initializer("lengths", lengths);
    return m;
  };
  const NodeAttributes attributes = {{"num_heads", int64_t{2}}, {"unidirectional", int64_t{1}}};
  ModelBuilder quantized = base(), plain = base();
  AddFused(quantized, "QAttention", {"x", "w", "b", "x_s", "w_s", "lengths", "x_z", "w_z"}, attributes);
  plain.Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"xf"}).Node("DequantizeLinear", {"w", "w_s", "w_z"}, {"wf"});
  AddFused(plain, "Attention", {"xf", "wf", "b", "lengths"}, attributes);
  ExpectEqualModels(quantized, plain, {RandomIntegers(DType::kUint8, {2, 3, 8}, 4)});
}

// A table of 4-bit numbers, two a byte with the lower one first, in blocks of 16.
TEST(Fused, RowsOfAQuantizedTableAreGathered) {
  constexpr int64_t kRows = 5, kColumns = 40, kBlock = 16, kBlocks = 3;
  const Array bytes = RandomIntegers(DType::kUint8, {kRows, kColumns / 2}, 1),
              scales = RandomFloats({kRows, kBlocks}, 2), zeros = RandomIntegers(DType::kUint8, {kRows, 2}, 3);
  const auto number = [](const Array& packed, int64_t row, int64_t i) {
    return packed.int_at(row * packed.shape[1] + i / 2) >> (i % 2 * 4) & 15;
  };
  Array indices(DType::kInt64, {2, 2});
  for (int64_t i = 0; i < 4; ++i) indices.set_int(i, i * 3 % kRows);
  for (const bool has_zeros : {false, true}) {
    ModelBuilder model = RuntimeModel();
    model.Input("rows", {2, 2}, DType::kInt64).Initializer("t", bytes).Initializer("s", scales);
    std::vector<std::string> inputs = {"t", "rows", "s"};
    if (has_zeros) {
      model.Initializer("z", zeros);
      inputs.push_back("z");
    }
    AddFused(
        model, "GatherBlockQuantized", inputs,
        {{"gather_axis", int64_t{0}}, {"quantize_axis", int64_t{1}}, {"block_size", kBlock}, {"bits", int64_t{4}}});
    const auto network = model.Import();
    ASSERT_TRUE(network.ok()) << network.status();
    const auto outputs = EvaluateNetwork(*network, {indices});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    Array want(DType::kFloat32, {2, 2, kColumns});
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const int64_t row = indices.int_at(i), block = j / kBlock, zero = has_zeros ? number(zeros, row, block) : 8;
        want.set(i * kColumns + j,
                 static_cast<double>(number(bytes, row, j) - zero) * scales.at(row * kBlocks + block));
      }
    }
    ExpectNear((*outputs)[0], want, 1e-6);
  }
}

}  // namespace
}  // namespace diapason
