// Quantised models: those with QuantizeLinear and DequantizeLinear around float operators are the same tasks as those
// of QLinear operators.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "../testing.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

// What both ways of writing a model have in common: NAME_s and NAME_z are scale and zero point.
ModelBuilder QuantisedBase() {
  ModelBuilder m(17);
  m.proto().add_opset_import()->set_domain("com.microsoft");
  m.proto().mutable_opset_import(m.proto().opset_import_size() - 1)->set_version(1);
  const auto scale = [&](const std::string& name, float s, int64_t zero) {
    m.Initializer(name + "_s", Array::FromFloats({}, {s})).Initializer(name + "_z", OneInteger(DType::kUint8, zero));
  };
  m.Input("x", {1, 6, 9, 9}, DType::kUint8);
  scale("x", 0.02f, 117);
  scale("c", 0.05f, 0);
  scale("d", 0.4f, 130);
  scale("y", 0.5f, 120);
  m.Initializer("w", RandomIntegers(DType::kInt8, {6, 6, 3, 3}, 1)).Initializer("w_z", OneInteger(DType::kInt8, 0));
  m.Initializer("w_s", Array::FromFloats({6}, {0.01f, 0.02f, 0.015f, 0.005f, 0.01f, 0.03f}));
  Array zeros(DType::kInt8, {6}), bias(DType::kInt32, {6}), bias_scales(DType::kFloat32, {6});
  for (int i = 0; i < 6; ++i) {
    bias.set_int(i, 300 * i - 700);
    bias_scales.set(i, 0.02f * std::vector<float>{0.01f, 0.02f, 0.015f, 0.005f, 0.01f, 0.03f}[i]);
  }
  m.Initializer("w_zs", zeros).Initializer("b", bias).Initializer("b_s", bias_scales);
  m.Initializer("v", RandomIntegers(DType::kInt8, {9, 9}, 2))
      .Initializer("v_s", Array::FromFloats({}, {0.01f}))
      .Initializer("v_z", OneInteger(DType::kInt8, 3));
  return m;
}

const std::vector<std::pair<std::string, OnnxValue>> kPadded = {{"pads", Ints{1, 1, 1, 1}}};

ModelBuilder WithQLinear() {
  ModelBuilder m = QuantisedBase();
  m.Node("QLinearConv", {"x", "x_s", "x_z", "w", "w_s", "w_zs", "c_s", "c_z", "b"}, {"c"}, kPadded);
  m.Node("QLinearMatMul", {"c", "c_s", "c_z", "v", "v_s", "v_z", "d_s", "d_z"}, {"d"});
  m.Node("QLinearAdd", {"c", "c_s", "c_z", "d", "d_s", "d_z", "y_s", "y_z"}, {"y"});
  m.proto().mutable_graph()->mutable_node(2)->set_domain("com.microsoft");
  return m.Output("y", DType::kUint8);
}

ModelBuilder WithPairs() {
  ModelBuilder m = QuantisedBase();
  m.Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"xf"})
      .Node("DequantizeLinear", {"w", "w_s", "w_zs"}, {"wf"}, {{"axis", int64_t{0}}});
  m.Node("DequantizeLinear", {"b", "b_s"}, {"bf"}, {{"axis", int64_t{0}}});
  m.Node("Conv", {"xf", "wf", "bf"}, {"cf"}, kPadded)
      .Node("Relu", {"cf"}, {"cr"})
      .Node("QuantizeLinear", {"cr", "c_s", "c_z"}, {"c"});
  m.Node("DequantizeLinear", {"c", "c_s", "c_z"}, {"cd"}).Node("DequantizeLinear", {"v", "v_s", "v_z"}, {"vf"});
  m.Node("MatMul", {"cd", "vf"}, {"df"})
      .Node("QuantizeLinear", {"df", "d_s", "d_z"}, {"d"})
      .Node("DequantizeLinear", {"d", "d_s", "d_z"}, {"dd"});
  m.Node("Add", {"cd", "dd"}, {"yf"}).Node("QuantizeLinear", {"yf", "y_s", "y_z"}, {"y"});
  return m.Output("y", DType::kUint8);
}

std::multiset<std::string> WorkloadsOf(const Network& network) {
  std::multiset<std::string> keys;
  const auto partition = PartitionNetwork(network);
  EXPECT_TRUE(partition.ok()) << partition.status();
  for (const Task& task : partition->tasks) keys.insert(task.workload_key);
  return keys;
}

TEST(QuantisedModels, AreTheSameTasksHoweverTheyAreWritten) {
  const auto linear = WithQLinear().Import(), pairs = WithPairs().Import();
  ASSERT_TRUE(linear.ok()) << linear.status();
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  const auto a = Optimize(*linear, {}), b = Optimize(*pairs, {});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(WorkloadsOf(*a), WorkloadsOf(*b));
  for (const Node& node : b->nodes) {
    if (node.op == "conv2d" || node.op == "matmul" || node.op == "gemm") {
      EXPECT_EQ(b->tensor(node.output).type.dtype, DType::kInt32) << node.name;
    }
  }
  const std::vector<Array> inputs = {RandomIntegers(DType::kUint8, {1, 6, 9, 9}, 7)};
  const auto want = EvaluateNetwork(*linear, inputs), got = EvaluateNetwork(*b, inputs),
             as_floats = EvaluateNetwork(*pairs, inputs);
  ASSERT_TRUE(want.ok() && got.ok() && as_floats.ok());
  int64_t differ = 0;
  for (int64_t i = 0; i < (*want)[0].elements(); ++i) {
    EXPECT_EQ((*got)[0].int_at(i), (*want)[0].int_at(i));
    EXPECT_LE(std::abs((*got)[0].int_at(i) - (*as_floats)[0].int_at(i)), 1);
    differ += (*got)[0].int_at(i) != (*as_floats)[0].int_at(i);
  }
  EXPECT_LT(differ, (*want)[0].elements() / 20);
}

// One operator of ONNX Runtime on bytes, and the operator that it stands for between Q/DQ pairs.
struct ByteOperator {
  const char* op;
  std::vector<std::string> inputs;
  const char* plain;
  std::vector<std::string> plain_inputs;
  std::vector<std::pair<std::string, OnnxValue>> attributes, plain_attributes;
};

TEST(QuantisedModels, OperatorsOfBytesAreThoseBetweenPairs) {
  const std::vector<ByteOperator> cases = {
      {"QLinearAveragePool",
       {"x", "x_s", "x_z", "y_s", "y_z"},
       "AveragePool",
       {"xf"},
       {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{0, 1, 1, 1}}},
       {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{0, 1, 1, 1}}}},
      {"QLinearConcat",
       {"y_s", "y_z", "x", "x_s", "x_z", "x", "c_s", "c_z"},
       "Concat",
       {"xf", "xc"},
       {{"axis", int64_t{-1}}},
       {{"axis", int64_t{-1}}}},
      {"QLinearSoftmax",
       {"x", "x_s", "x_z", "p_s", "p_z"},
       "Softmax",
       {"xf"},
       {{"opset", int64_t{13}}, {"axis", int64_t{1}}},
       {{"axis", int64_t{1}}}},
      {"QLinearWhere", {"if", "x", "x_s", "x_z", "x", "c_s", "c_z", "y_s", "y_z"}, "Where", {"if", "xf", "xc"}, {}, {}},
      {"QGemm",
       {"rows", "x_s", "x_z", "v", "v_s", "v_z", "g", "y_s", "y_z"},
       "Gemm",
       {"rf", "vf", "gf"},
       {{"transB", int64_t{1}}},
       {{"transB", int64_t{1}}}}};
  Array mask(DType::kBool, {9}), bias(DType::kInt32, {9});
  for (int i = 0; i < 9; ++i) {
    mask.set_int(i, i % 2);
    bias.set_int(i, 1000 * i - 4000);
  }
  for (const ByteOperator& c : cases) {
    SCOPED_TRACE(c.op);
    const bool softmax = std::string(c.op) == "QLinearSoftmax";
    const auto base = [&] {
      ModelBuilder m = QuantisedBase();
      m.Initializer("if", mask).Initializer("g", bias).Initializer("g_s", Array::FromFloats({}, {0.02f * 0.01f}));
      m.Initializer("p_s", Array::FromFloats({}, {1.f / 256})).Initializer("p_z", OneInteger(DType::kUint8, 0));
      m.Initializer("flat", IntList({54, 9})).Node("Reshape", {"x", "flat"}, {"rows"});
      return m;
    };
    ModelBuilder bytes = base(), pairs = base();
    bytes.Node(c.op, c.inputs, {"y"}, c.attributes).Output("y", DType::kUint8);
    bytes.proto().mutable_graph()->mutable_node()->rbegin()->set_domain("com.microsoft");
    for (const auto& [from, to, of] : std::vector<std::array<std::string, 3>>{
             {"x", "xf", "x"}, {"x", "xc", "c"}, {"rows", "rf", "x"}, {"v", "vf", "v"}})
      pairs.Node("DequantizeLinear", {from, of + "_s", of + "_z"}, {to});
    pairs.Node("DequantizeLinear", {"g", "g_s"}, {"gf"}).Node(c.plain, c.plain_inputs, {"yf"}, c.plain_attributes);
    pairs.Node("QuantizeLinear", {"yf", softmax ? "p_s" : "y_s", softmax ? "p_z" : "y_z"}, {"y"})
        .Output("y", DType::kUint8);
    const auto network = bytes.Import(), plain = pairs.Import();
    ASSERT_TRUE(network.ok() && plain.ok()) << network.status() << plain.status();
    const std::vector<Array> inputs = {RandomIntegers(DType::kUint8, {1, 6, 9, 9}, 7)};
    const auto got = EvaluateNetwork(*network, inputs), want = EvaluateNetwork(*plain, inputs);
    ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
    ASSERT_EQ((*got)[0].shape, (*want)[0].shape);
    int64_t differ = 0;
    for (int64_t i = 0; i < (*want)[0].elements(); ++i) {
      EXPECT_LE(std::abs((*got)[0].int_at(i) - (*want)[0].int_at(i)), 1) << i;
      differ += (*got)[0].int_at(i) != (*want)[0].int_at(i);
    }
    EXPECT_LE(differ, (*want)[0].elements() / 20);
  }
}

// Near the same network with the weights that its integers stand for.
TEST(QuantisedModels, ALstmOfQuantisedWeights) {
  const int64_t inputs = 5, hidden = 4, steps = 3, batch = 2;
  const Ints w_shape = {1, inputs, 4 * hidden}, r_shape = {1, hidden, 4 * hidden};
  const Array w = RandomIntegers(DType::kUint8, w_shape, 1), r = RandomIntegers(DType::kInt8, r_shape, 2);
  const Array bias = RandomArray({DType::kFloat32, {1, 8 * hidden}}, 3);
  const auto turned = [&](const Array& q, double zero, double scale) {
    const int64_t depth = q.shape[1], columns = q.shape[2];
    Array out(DType::kFloat32, {1, columns, depth});
    for (int64_t i = 0; i < depth; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out.set(j * depth + i, (static_cast<double>(q.int_at(i * columns + j)) - zero) * scale);
    return out;
  };
  ModelBuilder quantised(17), plain(17);
  quantised.Input("x", {steps, batch, inputs}).Initializer("w", w).Initializer("r", r).Initializer("b", bias);
  quantised.Initializer("ws", Array::FromFloats({1}, {0.01f})).Initializer("wz", RandomIntegers(DType::kUint8, {1}, 9));
  quantised.Initializer("rs", Array::FromFloats({1}, {0.005f})).Initializer("rz", Array(DType::kInt8, {1}));
  quantised.Node("DynamicQuantizeLSTM", {"x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"}, {"y", "h"},
                 {{"hidden_size", hidden}});
  quantised.proto().mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  quantised.proto().add_opset_import()->set_domain("com.microsoft");
  quantised.proto().mutable_opset_import(1)->set_version(1);
  const double zero = static_cast<double>(RandomIntegers(DType::kUint8, {1}, 9).int_at(0));
  plain.Input("x", {steps, batch, inputs})
      .Initializer("w", turned(w, zero, 0.01))
      .Initializer("r", turned(r, 0, 0.005))
      .Initializer("b", bias);
  plain.Node("LSTM", {"x", "w", "r", "b"}, {"y", "h"}, {{"hidden_size", hidden}});
  const auto a = quantised.Output("y").Output("h").Import(), b = plain.Output("y").Output("h").Import();
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  const std::vector<Array> x = {RandomArray({DType::kFloat32, {steps, batch, inputs}}, 4)};
  const auto got = EvaluateNetwork(*a, x), want = EvaluateNetwork(*b, x);
  ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
  for (size_t o = 0; o < 2; ++o) ExpectNear((*got)[o], (*want)[o], 0.02);
  const auto optimized = Optimize(*a, {});
  ASSERT_TRUE(optimized.ok()) << optimized.status();
  const auto again = EvaluateNetwork(*optimized, x);
  for (size_t o = 0; o < 2; ++o) ExpectNear((*again)[o], (*got)[o], 1e-5);
}

}  // namespace
}  // namespace diapason
