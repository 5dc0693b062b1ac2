// Whole models, as PyTorch and the ONNX project export them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "../testing.h"
#include "compiler/graph/builtin.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

Array Random4(Ints shape, uint64_t seed) { return RandomArray({DType::kFloat32, std::move(shape)}, seed); }

// conv, batch norm, relu, conv, batch norm, addition of the input, relu, pool, classifier.
ModelBuilder ResidualBlock(DType dtype = DType::kFloat32) {
  ModelBuilder model(13);
  auto weight = [&](const std::string& name, Ints shape, uint64_t seed) {
    Array array(dtype, shape);
    Array values = Random4(shape, seed);
    for (int64_t i = 0; i < array.elements(); ++i) {
      array.set(i, name.find("var") == std::string::npos ? values.at(i) : 1 + values.at(i) / 2);
    }
    model.Initializer(name, array);
  };
  model.Input("image", {"N", 4, 6, 6}, dtype);
  for (int i = 1; i <= 2; ++i) {
    std::string k = std::to_string(i);
    weight("conv" + k + ".w", {4, 4, 3, 3}, 10 * i);
    for (const char* name : {"scale", "bias", "mean", "var"}) weight("bn" + k + "." + name, {4}, 10 * i + name[0]);
  }
  weight("fc.w", {3, 4}, 5);
  weight("fc.b", {3}, 6);
  model.Node("Conv", {"image", "conv1.w"}, {"c1"}, {{"pads", Ints{1, 1, 1, 1}}, {"kernel_shape", Ints{3, 3}}})
      .Node("BatchNormalization", {"c1", "bn1.scale", "bn1.bias", "bn1.mean", "bn1.var"}, {"n1"})
      .Node("Relu", {"n1"}, {"r1"})
      .Node("Conv", {"r1", "conv2.w"}, {"c2"}, {{"pads", Ints{1, 1, 1, 1}}})
      .Node("BatchNormalization", {"c2", "bn2.scale", "bn2.bias", "bn2.mean", "bn2.var"}, {"n2"}, {{"epsilon", 0.001f}})
      .Node("Add", {"n2", "image"}, {"sum"})
      .Node("Relu", {"sum"}, {"r2"})
      .Node("GlobalAveragePool", {"r2"}, {"pool"})
      .Node("Flatten", {"pool"}, {"flat"})
      .Node("Gemm", {"flat", "fc.w", "fc.b"}, {"logits"}, {{"transB", int64_t{1}}})
      .Output("logits", dtype);
  return model;
}

// The same block in our operators.
Network ResidualBlockByHand(const Network& imported, int64_t batch) {
  Network n;
  int x = n.AddInput("image", {DType::kFloat32, {batch, 4, 6, 6}});
  auto weight = [&](const std::string& name) {
    for (const Tensor& t : imported.tensors) {
      if (t.name == name) return n.AddConstant(name, *t.data);
    }
    ADD_FAILURE() << "no constant " << name;
    return -1;
  };
  auto conv = [&](int input, const std::string& k, double epsilon) {
    int c = n.AddNode("conv2d", {input, weight("conv" + k + ".w")}, {{"pads", Ints{1, 1, 1, 1}}}).value();
    return n
        .AddNode("batch_norm",
                 {c, weight("bn" + k + ".scale"), weight("bn" + k + ".bias"), weight("bn" + k + ".mean"),
                  weight("bn" + k + ".var")},
                 {{"epsilon", epsilon}})
        .value();
  };
  int r = n.AddNode("relu", {conv(x, "1", 1e-5)}).value();
  int sum = n.AddNode("add", {conv(r, "2", 1e-3), x}).value();
  r = n.AddNode("relu", {sum}).value();
  int pool = n.AddNode("reduce_mean", {r}, {{"axes", Ints{2, 3}}, {"keepdims", int64_t{0}}}).value();
  n.outputs = {n.AddNode("gemm", {pool, weight("fc.w"), weight("fc.b")}, {{"trans_b", int64_t{1}}}, "logits").value()};
  return n;
}

TEST(Models, AResidualBlockComputesTheSameAsBuiltByHand) {
  ModelOptions options;
  options.batch = 2;
  auto imported = ResidualBlock().Import(options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->name, "model");
  EXPECT_EQ(imported->tensors[imported->inputs[0]].name, "image");
  EXPECT_EQ(imported->tensors[imported->inputs[0]].type.ToString(), "float32 2x4x6x6");
  EXPECT_EQ(imported->tensors[imported->outputs[0]].type.ToString(), "float32 2x3");
  EXPECT_EQ(imported->nodes[0].name, "node_c1");
  ExpectSameResults(ResidualBlockByHand(*imported, 2), *imported);
}

TEST(Models, AnOptimisedImportComputesTheSame) {
  Network imported = ResidualBlock().Import().value();
  auto optimised = Optimize(imported, {});
  ASSERT_TRUE(optimised.ok()) << optimised.status();
  EXPECT_EQ(CountOps(*optimised, "batch_norm"), 0);
  ExpectSameResults(imported, *optimised, 1e-4);
}

TEST(Models, Float16StaysFloat16) {
  auto imported = ResidualBlock(DType::kFloat16).Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  for (const Tensor& t : imported->tensors) EXPECT_EQ(t.type.dtype, DType::kFloat16) << t.name;
  ExpectSameResults(*imported, *imported, 1e-3);  // subgraphs round once where nodes round each result
}

TEST(Models, ParametersOfALayerNormalizationTakeTheTypeOfItsInput) {
  ModelBuilder model(17);
  model.Input("x", {2, 4}).Initializer("scale", Counting({4}, DType::kFloat16));
  model.Initializer("bias", Counting({4}, DType::kFloat16));
  model.Node("LayerNormalization", {"x", "scale", "bias"}, {"y"}).Output("y");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto outputs = EvaluateNetwork(*imported, {Counting({2, 4})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  // 1, 2, 3, 4 have the mean 2.5 and the variance 1.25.
  Array want(DType::kFloat32, {2, 4});
  for (int64_t i = 0; i < 8; ++i)
    want.set(i, ((i % 4 - 1.5) / std::sqrt(1.25 + 1e-5) + 1) * static_cast<double>(i % 4 + 1));
  ExpectNear((*outputs)[0], want, 1e-5);
}

TEST(Models, StatisticsOfANormalizationAreFloat32) {
  ModelBuilder model(17);
  model.Input("x", {2, 4}, DType::kFloat16).Initializer("scale", Counting({4}, DType::kFloat16));
  model.Node("LayerNormalization", {"x", "scale"}, {"y", "mean", "inverse"}, {{"epsilon", 0.f}});
  model.Node("SimplifiedLayerNormalization", {"x", "scale"}, {"z", "root"}, {{"epsilon", 0.f}});
  model.Output("y", DType::kFloat16).Output("mean").Output("inverse").Output("root");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto outputs = EvaluateNetwork(*imported, {Counting({2, 4}, DType::kFloat16)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[0].dtype, DType::kFloat16);
  // 1, 2, 3, 4 and 5, 6, 7, 8: variances of 1.25, mean squares of 7.5 and 43.5.
  const auto column = [](double first, double second) {
    return Array::FromFloats({2, 1}, {static_cast<float>(first), static_cast<float>(second)});
  };
  ExpectNear((*outputs)[1], column(2.5, 6.5), 1e-6);
  ExpectNear((*outputs)[2], column(std::sqrt(0.8), std::sqrt(0.8)), 1e-6);
  ExpectNear((*outputs)[3], column(1 / std::sqrt(7.5), 1 / std::sqrt(43.5)), 1e-6);
}

// As torch.roll by 0 is exported: rows from the end on, then those in front of it.
TEST(Models, EmptyPartsMayBeComputedAndJoined) {
  ModelBuilder model(13);
  model.Input("x", {2, 3}).Initializer("end", IntList({2})).Initializer("zero", IntList({0}));
  model.Node("Slice", {"x", "end", "end", "zero"}, {"none"}).Node("Relu", {"none"}, {"none1"});
  model.Node("Concat", {"none", "none1"}, {"none2"}, {{"axis", int64_t{0}}});
  model.Node("Concat", {"none2", "x", "none"}, {"y"}, {{"axis", int64_t{0}}}).Output("y");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  ExpectNear((*EvaluateNetwork(*imported, {Counting({2, 3})}))[0], Counting({2, 3}), 0);
  model.Output("none2");
  EXPECT_EQ(std::string(model.Import().status().message()),
            "cannot import 'model.onnx': output 'none2' is empty, which is not supported");
}

// An extent of 1 becomes one of 0 where the other side is empty.
TEST(Models, EmptyPartsBroadcast) {
  ModelBuilder model(13);
  model.Input("x", {2, 3}).Initializer("end", IntList({2})).Initializer("zero", IntList({0}));
  model.Initializer("empty", IntList({0, 3})).Initializer("one", Array::FromFloats({1, 3}, {1, 2, 3}));
  model.Node("Slice", {"x", "end", "end", "zero"}, {"none"}).Node("Add", {"none", "one"}, {"none1"});
  model.Node("Expand", {"one", "empty"}, {"none2"});
  model.Node("Concat", {"none1", "x", "none2"}, {"y"}, {{"axis", int64_t{0}}}).Output("y");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  ExpectNear((*EvaluateNetwork(*imported, {Counting({2, 3})}))[0], Counting({2, 3}), 0);
}

TEST(Models, AValueToPadWithMayBeComputed) {
  ModelBuilder model(13);
  model.Input("x", {2, 3}).Input("value", {1}).Initializer("pads", IntList({1, -1, 0, 2}));
  model.Node("Pad", {"x", "pads", "value"}, {"y"}).Output("y");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto outputs = EvaluateNetwork(*imported, {Counting({2, 3}), Array::FromFloats({1}, {9})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectNear((*outputs)[0], Array::FromFloats({3, 4}, {9, 9, 9, 9, 2, 3, 9, 9, 5, 6, 9, 9}), 0);

  ModelBuilder many(13);
  many.Input("x", {2, 3}).Input("value", {2}).Initializer("pads", IntList({1, 0, 0, 0}));
  many.Node("Pad", {"x", "pads", "value"}, {"y"}).Output("y");
  EXPECT_EQ(std::string(many.Import().status().message()),
            "cannot import 'model.onnx': node 'node_y' (Pad of opset 13): input 2 (the value to pad with) must have "
            "one element");
}

TEST(Models, LogarithmsOfSumsOfExponentialsKeepInfinities) {
  ModelBuilder model(13);
  model.Input("x", {3, 2});
  model.Node("ReduceLogSumExp", {"x"}, {"y"}, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}}).Output("y");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Array x = Array::FromFloats({3, 2}, {-kInfinity, -kInfinity, 1, kInfinity, -kInfinity, 2});
  const auto outputs = EvaluateNetwork(*imported, {x});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[0].at(0), -kInfinity);
  EXPECT_EQ((*outputs)[0].at(1), kInfinity);
  EXPECT_NEAR((*outputs)[0].at(2), 2, 1e-6);
}

TEST(Models, ProductsOfLongIntegersAreExact) {
  ModelBuilder model(13);
  model.Input("a", {1, 2}, DType::kInt64).Input("b", {2, 1}, DType::kInt64);
  model.Node("MatMul", {"a", "b"}, {"y"}).Output("y", DType::kInt64);
  const auto imported = model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  Array a(DType::kInt64, {1, 2}), b(DType::kInt64, {2, 1});
  for (int i = 0; i < 2; ++i) {
    a.set_int(i, (int64_t{1} << 40) + i);
    b.set_int(i, i + 3);
  }
  const auto outputs = EvaluateNetwork(*imported, {a, b});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[0].int_at(0), 7 * (int64_t{1} << 40) + 4);
}

// Expand by 1x1, depthwise, project by 1x1, add: a block of MobileNet-v2, as PyTorch exports it.
ModelBuilder InvertedResidual() {
  ModelBuilder model(13);
  model.Input("image", {"N", 4, 9, 9});
  int layer = 0;
  auto conv_norm = [&](const std::string& x, const std::string& y, Ints shape, int64_t group, int64_t stride) {
    const uint64_t seed = 10 * ++layer;
    model.Initializer(y + ".w", Random4(shape, seed));
    std::vector<std::string> inputs = {y + ".conv"};
    for (const char* name : {"scale", "bias", "mean", "var"}) {
      Array values = Random4({shape[0]}, seed + name[0]);
      for (int64_t i = 0; name == std::string("var") && i < shape[0]; ++i) values.set(i, 1.5 + values.at(i) / 2);
      inputs.push_back(y + "." + name);
      model.Initializer(inputs.back(), values);
    }
    const int64_t pad = shape[2] / 2;
    model.Node("Conv", {x, y + ".w"}, {y + ".conv"},
               {{"kernel_shape", Ints{shape[2], shape[3]}},
                {"pads", Ints(4, pad)},
                {"strides", Ints(2, stride)},
                {"group", group}});
    model.Node("BatchNormalization", inputs, {y});
  };
  auto relu6 = [&](const std::string& x) {
    for (const auto& [name, value] : {std::pair{".min", 0.0}, std::pair{".max", 6.0}}) {
      Array bound(DType::kFloat32, {});
      bound.set(0, value);
      model.Node("Constant", {}, {x + name}, {{"value", bound}});
    }
    model.Node("Clip", {x, x + ".min", x + ".max"}, {x + ".relu6"});
    return x + ".relu6";
  };
  conv_norm("image", "expand", {12, 4, 1, 1}, 1, 1);
  conv_norm(relu6("expand"), "depthwise", {12, 1, 3, 3}, 12, 1);
  conv_norm(relu6("depthwise"), "project", {4, 12, 1, 1}, 1, 1);
  model.Node("Add", {"image", "project"}, {"sum"});
  conv_norm("sum", "expand2", {8, 4, 1, 1}, 1, 1);
  conv_norm(relu6("expand2"), "depthwise2", {8, 1, 3, 3}, 8, 2);
  conv_norm(relu6("depthwise2"), "project2", {6, 8, 1, 1}, 1, 1);
  model.Initializer("fc.w", Random4({3, 6}, 5)).Initializer("fc.b", Random4({3}, 6));
  model.Node("GlobalAveragePool", {"project2"}, {"pool"})
      .Node("Flatten", {"pool"}, {"flat"})
      .Node("Gemm", {"flat", "fc.w", "fc.b"}, {"logits"}, {{"transB", int64_t{1}}})
      .Output("logits");
  return model;
}

TEST(Models, InvertedResidualsBecomeOneTaskAConvolutionAndComputeTheSame) {
  const Network imported = InvertedResidual().Import().value();
  const auto optimised = Optimize(imported, {});
  ASSERT_TRUE(optimised.ok()) << optimised.status();
  EXPECT_EQ(CountOps(*optimised, "batch_norm"), 0);
  ExpectSameResults(imported, *optimised, 1e-4);
  std::vector<std::string> names;
  const Partition partition = PartitionNetwork(*optimised).value();
  for (const Task& task : partition.tasks) names.push_back(task.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"transpose_9x9x4", "conv2d_1x1_s1_9x9x4_12_bias_clip",
                                      "depthwise_conv2d_3x3_s1_9x9x12_bias_clip", "conv2d_1x1_s1_9x9x12_4_bias_add",
                                      "conv2d_1x1_s1_9x9x4_8_bias_clip", "depthwise_conv2d_3x3_s2_9x9x8_bias_clip",
                                      "conv2d_1x1_s1_5x5x8_6_bias", "global_avg_pool_5x5x6", "gemm_1x3x6_bias"}));
}

// x.view(x.size(0), -1), as PyTorch exports it.
TEST(Models, AFlattenOfShapesBecomesAReshape) {
  Array zero(DType::kInt64, {});
  ModelBuilder model(13);
  model.Input("x", {"N", 3, 2, 2})
      .Node("Shape", {"x"}, {"shape"})
      .Node("Constant", {}, {"index"}, {{"value", zero}})
      .Node("Gather", {"shape", "index"}, {"batch"}, {{"axis", int64_t{0}}})
      .Node("Constant", {}, {"axes"}, {{"value", IntList({0})}})
      .Node("Unsqueeze", {"batch", "axes"}, {"batch1"})
      .Node("Constant", {}, {"rest"}, {{"value", IntList({-1})}})
      .Node("Concat", {"batch1", "rest"}, {"target"}, {{"axis", int64_t{0}}})
      .Node("Reshape", {"x", "target"}, {"y"})
      .Output("y");
  ModelOptions options;
  options.batch = 5;
  auto network = model.Import(options);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->ToString(),
            "network model\n"
            "  %0 = input x : float32 5x3x2x2\n"
            "  %1 = reshape(%0, shape=5,-1) : float32 5x12  # node_y\n"
            "  output %1\n");
}

// Arithmetic on shapes, as exporters write it for x.view(n, c / 2, -1) and channel shuffles.
TEST(Models, ArithmeticOnShapesIsFolded) {
  ModelBuilder model(11);
  model.Input("x", {2, 6, 2, 2})
      .Node("Shape", {"x"}, {"shape"})
      .Node("Constant", {}, {"from"}, {{"value", IntList({0})}})
      .Node("Constant", {}, {"to"}, {{"value", IntList({2})}})
      .Node("Slice", {"shape", "from", "to"}, {"head"})
      .Node("Constant", {}, {"two"}, {{"value", IntList({1, 2})}})
      .Node("Div", {"head", "two"}, {"halved"})
      .Node("Cast", {"halved"}, {"float"}, {{"to", int64_t{1}}})
      .Node("Floor", {"float"}, {"floor"})
      .Node("Cast", {"floor"}, {"int"}, {{"to", int64_t{7}}})
      .Node("Slice", {"shape", "to", "big"}, {"tail"})
      .Node("ReduceProd", {"tail"}, {"area"}, {{"keepdims", int64_t{1}}})
      .Node("Constant", {}, {"minus"}, {{"value", IntList({-1})}})
      .Node("Concat", {"int", "minus", "area"}, {"target"}, {{"axis", int64_t{0}}})
      .Initializer("big", IntList({INT64_MAX}))
      .Node("Reshape", {"x", "target"}, {"y"})
      .Output("y");
  auto network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->nodes.size(), 1u);
  EXPECT_EQ(network->tensors[network->outputs[0]].type.ToString(), "float32 2x3x2x4");
}

// Positions and shapes that are put together by operators which are products and scatters elsewhere.
TEST(Models, ScattersAndProductsOfFewIntegersAreFolded) {
  ModelBuilder model(13);
  model.Input("x", {2, 6}).Initializer("ones", IntList({1, 1})).Initializer("at", IntList({1, 0}));
  model.Initializer("sizes", IntList({4, 3}));
  model.Node("ScatterElements", {"ones", "at", "sizes"}, {"shape"}).Node("Reshape", {"x", "shape"}, {"y"}).Output("y");
  const auto network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->nodes.size(), 1u);
  EXPECT_EQ(network->tensors[network->outputs[0]].type.ToString(), "float32 3x4");

  ModelBuilder product(13);
  Array matrix(DType::kInt64, {2, 2});
  for (int i = 0; i < 4; ++i) matrix.set_int(i, i % 3);  // 0 1, 2 0
  product.Input("x", {2, 12}).Initializer("m", matrix).Initializer("v", IntList({6, 2}));
  product.Node("MatMul", {"m", "v"}, {"shape"}).Node("Reshape", {"x", "shape"}, {"y"}).Output("y");
  const auto folded = product.Import();
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(folded->tensors[folded->outputs[0]].type.ToString(), "float32 2x12");
}

// Depthwise convolution, batch norm and Relu6, which is a Clip: with attributes to opset 10, with inputs from 11 on.
ModelBuilder MobileBlock(int64_t opset) {
  ModelBuilder model(opset);
  model.Input("x", {1, 4, 5, 5})
      .Initializer("w", Random4({4, 1, 3, 3}, 1))
      .Initializer("p", Random4({8, 4, 1, 1}, 2))
      .Initializer("b", Random4({8}, 3))
      .Node("Conv", {"x", "w"}, {"dw"}, {{"group", int64_t{4}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}});
  if (opset < 11) {
    model.Node("Clip", {"dw"}, {"r"}, {{"min", 0.f}, {"max", 6.f}});
  } else {
    model.Node("Constant", {}, {"min"}, {{"value", Array(DType::kFloat32, {})}})
        .Node("Constant", {}, {"max"}, {{"value", Array::FromFloats({}, {6})}})
        .Node("Clip", {"dw", "min", "max"}, {"r"});
  }
  model.Node("Conv", {"r", "p", "b"}, {"y"}).Output("y");
  return model;
}

TEST(Models, Relu6OfAllOpsetsIsTheSame) {
  auto before = MobileBlock(10).Import(), after = MobileBlock(13).Import();
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(before->ToString(), after->ToString());
  EXPECT_EQ(before->ToString(),
            "network model\n"
            "  %0 = input x : float32 1x4x5x5\n"
            "  %2 = conv2d(%0, %1c, dilations=1,1, group=4, pads=1,1,1,1, strides=2,2) : float32 1x4x3x3  # node_dw\n"
            "  %3 = clip(%2, max=6, min=0) : float32 1x4x3x3  # node_r\n"
            "  %6 = conv2d(%3, %4c, %5c, dilations=1,1, group=1, pads=0,0,0,0, strides=1,1) : float32 1x8x3x3  # "
            "node_y\n"
            "  output %6\n");
  ExpectSameResults(*before, *after);
}

// Equal work gives equal tasks, wherever it comes from: records of one serve the other.
TEST(Models, ResNet18FromAFileHasTheTasksOfTheBuiltInOne) {
  ModelOptions options;
  options.layout = Layout::kNCHW;
  options.extra["image"] = "64";
  Network built = BuiltinNetwork("resnet-18", options).value();
  options.extra.clear();
  auto imported = ExportNetwork(built).Import(options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  options.layout = Layout::kNHWC;
  auto weights = [&](Network network) {
    Network optimised = Optimize(std::move(network), options).value();
    Partition partition = PartitionNetwork(optimised).value();
    std::map<std::string, int> result;
    for (const Task& task : partition.tasks) result[task.name + " " + task.workload_key] = task.weight;
    return result;
  };
  EXPECT_EQ(weights(*imported), weights(built));
}

TEST(Models, SharedConstantsAndUnusedOnesCostNothing) {
  ModelBuilder model(13);
  model.Input("x", {1, 4})
      .Initializer("w", Random4({4}, 1))
      .Initializer("unused", Random4({4}, 2))
      .Node("Add", {"x", "w"}, {"a"})
      .Node("Mul", {"a", "w"}, {"y"})
      .Output("y");
  Network network = model.Import().value();
  int constants = 0;
  for (const Tensor& t : network.tensors) constants += t.constant();
  EXPECT_EQ(constants, 1);
}

TEST(Models, InputsAndConstantsMayBeOutputs) {
  ModelBuilder model(13);
  model.Input("x", {1, 2})
      .Initializer("w", Array::FromFloats({2}, {3, 4}))
      .Node("Shape", {"x"}, {"shape"})
      .Output("x")
      .Output("w")
      .Output("shape", DType::kInt64);
  auto network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  auto outputs = EvaluateNetwork(*network, {Array::FromFloats({1, 2}, {1, 2})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectNear((*outputs)[0], Array::FromFloats({1, 2}, {1, 2}), 0);
  ExpectNear((*outputs)[1], Array::FromFloats({2}, {3, 4}), 0);
  ExpectNear((*outputs)[2], IntList({1, 2}), 0);
  EXPECT_EQ(network->tensors[network->outputs[0]].name, "x");
  EXPECT_EQ(network->tensors[network->outputs[1]].name, "w");
  EXPECT_EQ(network->tensors[network->outputs[2]].name, "shape");
  EXPECT_TRUE(Optimize(*network, {}).ok());
}

// Files of old versions list initializers among the inputs.
TEST(Models, AnInitializerAmongTheInputsIsAConstant) {
  ModelBuilder model(13);
  model.Input("x", {1, 2}).Input("w", {2}).Initializer("w", Random4({2}, 1));
  model.Node("Add", {"x", "w"}, {"y"}).Output("y");
  Network network = model.Import().value();
  EXPECT_EQ(network.inputs.size(), 1u);
}

// What a library's pow makes of integers may be off by units in the last place, which the cast behind it would
// truncate.
TEST(Models, PowersOfIntegersAreRoundedWhereTheyAreIntegers) {
  ModelBuilder model(15);
  model.Input("x", {6}, DType::kInt32).Input("y", {6}).Node("Pow", {"x", "y"}, {"z"}).Output("z", DType::kInt32);
  const absl::StatusOr<Network> network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  Array base(DType::kInt32, {6}), wanted(DType::kInt32, {6});
  const double bases[] = {-3, 4, 2, -2, 3, 1000}, powers[] = {-3, 2, 0, -8, 5, 1000000000};
  for (int64_t i = 0; i < 6; ++i) {
    base.set(i, bases[i]);
    wanted.set(i, powers[i]);
  }
  const auto outputs = EvaluateNetwork(*network, {base, Array::FromFloats({6}, {1, 0.5, -1, 3, 1.5, 3})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectNear((*outputs)[0], wanted, 0);
  int rounded = 0;
  for (const Node& node : network->nodes) rounded += node.op == "round" ? 1 : 0;
  EXPECT_EQ(rounded, 1);
}

}  // namespace
}  // namespace diapason
