#include "compiler/graph/builtin.h"

#include <gtest/gtest.h>

#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/cuts.h"
#include "testing.h"

namespace diapason {
namespace {

TEST(Builtin, TheTableListsAllNetworks) {
  std::vector<std::string> names;
  for (const BuiltinInfo& info : BuiltinNetworks()) {
    names.push_back(info.name);
    EXPECT_FALSE(info.help.empty());
    for (const BuiltinOption& option : info.options) EXPECT_FALSE(option.help.empty());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"resnet-18", "resnet-34", "resnet-50", "resnet-101", "resnet-152",
                                             "mobilenet", "squeezenet_v1.1", "conv2d", "depthwise", "gemm"}));
}

TEST(Builtin, OptionsShapeTheInput) {
  ModelOptions options;
  options.batch = 4;
  options.extra["image"] = "64";
  Network n = BuiltinNetwork("resnet-18", options).value();
  EXPECT_EQ(n.tensors[n.inputs[0]].type.ToString(), "float32 4x64x64x3");
  options.layout = Layout::kNCHW;
  options.dtype = DType::kFloat16;
  n = LoadOptimized("resnet-18", options).value();
  EXPECT_EQ(n.tensors[n.inputs[0]].type.ToString(), "float16 4x3x64x64");
  EXPECT_EQ(n.tensors[n.outputs[0]].type.ToString(), "float16 4x1000");
  EXPECT_EQ(n.tensors[n.outputs[0]].name, "output");
  options.input_shapes["data"] = {4, 3, 96, 128};
  n = BuiltinNetwork("resnet-18", options).value();
  EXPECT_EQ(n.tensors[n.inputs[0]].type.ToString(), "float32 4x3x96x128");
}

TEST(Builtin, AConvolutionIsScaledAndShiftedInOneTask) {
  for (const std::string name : {"conv2d", "depthwise"}) {
    for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
      ModelOptions options;
      options.layout = layout;
      options.extra = {{"scale", "1"}, {"relu", "1"}};
      const Network n = LoadOptimized(name, options).value();
      std::vector<std::string> ops;
      for (const Node& node : n.nodes) ops.push_back(node.op);
      EXPECT_EQ(ops, (std::vector<std::string>{"conv2d", "mul", "add", "relu"})) << name;
      EXPECT_EQ(PartitionNetwork(n).value().tasks.size(), 1) << name;
    }
  }
}

TEST(Builtin, WidthScalesTheChannelsOfEveryLayer) {
  ModelOptions options;
  options.extra = {{"width", "13"}, {"classes", "10"}, {"image", "64"}};
  struct Case {
    std::string name;
    std::vector<int64_t> first, last;  // weights of the first and the last layer
  };
  const Case cases[] = {{"resnet-18", {7, 7, 3, 8}, {67, 10}},
                        {"resnet-50", {7, 7, 3, 8}, {268, 10}},
                        {"mobilenet", {3, 3, 3, 4}, {133, 10}},
                        {"squeezenet_v1.1", {3, 3, 3, 8}, {1, 1, 64, 10}}};
  for (const Case& c : cases) {
    const Network n = LoadOptimized(c.name, options).value();
    auto weight = [&](const Node& node) { return n.tensors[node.inputs[1]].type.shape; };
    const Node* last = nullptr;
    for (const Node& node : n.nodes)
      if (node.op == "conv2d" || node.op == "gemm") last = &node;
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(weight(n.nodes[0]), c.first) << c.name;
    EXPECT_EQ(weight(*last), c.last) << c.name;
  }
}

// Every worker checks it of what it is sent.
TEST(Builtin, TasksOfAllNetworksReadWhatIsThere) {
  for (const BuiltinInfo& network : BuiltinNetworks()) {
    if (network.name == "resnet-101" || network.name == "resnet-152") continue;  // the tasks of resnet-50, more often
    for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
      ModelOptions options;
      options.layout = layout;
      const Cuts cuts = FindCuts(LoadOptimized(network.name, options).value()).value();
      EXPECT_FALSE(cuts.partition.tasks.empty());
      for (const Task& task : cuts.partition.tasks)
        EXPECT_EQ(CheckAccesses(ParseDag(SerializeDag(task.dag)).value()), absl::OkStatus()) << network.name << " " << task.name;
    }
  }
}

TEST(Builtin, TheSameSeedGivesTheSameWeights) {
  auto weight = [](const char* seed) {
    ModelOptions options;
    options.extra["seed"] = seed;
    Network n = BuiltinNetwork("conv2d", options).value();
    return *n.tensors[n.nodes[0].inputs[1]].data;
  };
  EXPECT_EQ(weight("1").data, weight("1").data);
  EXPECT_NE(weight("1").data, weight("2").data);
}

// The size of results behind the first stage is near that of the inputs.
TEST(Builtin, ActivationsStayNearOne) {
  ModelOptions options;
  options.input_shapes["data"] = {1, 33, 33, 3};
  Network n = BuiltinNetwork("resnet-18", options).value();
  Network head = n;
  for (const Node& node : n.nodes) {
    if (node.name == "layer1.1.relu") head.outputs = {node.output};
  }
  while (head.nodes.back().output != head.outputs[0]) head.nodes.pop_back();
  auto out = EvaluateNetwork(head, RandomInputs(head, 3));
  ASSERT_TRUE(out.ok()) << out.status();
  double squares = 0;
  for (int64_t i = 0; i < (*out)[0].elements(); ++i) squares += (*out)[0].at(i) * (*out)[0].at(i);
  double rms = std::sqrt(squares / (*out)[0].elements());
  EXPECT_GT(rms, 0.2);
  EXPECT_LT(rms, 5);
}

struct ErrorCase {
  std::string name;
  ModelOptions options;
  absl::StatusCode code;
  std::string message;
};

ModelOptions Extra(const std::string& name, const std::string& value) {
  ModelOptions options;
  options.extra[name] = value;
  return options;
}

TEST(Builtin, ErrorsNameTheInputAndTheMend) {
  ModelOptions unknown_input, wrong_shape, other_batch, integers;
  unknown_input.input_shapes["image"] = {1, 224, 224, 3};
  wrong_shape.input_shapes["data"] = {224, 224, 3};
  other_batch.input_shapes["data"] = {2, 224, 224, 3};
  other_batch.batch = 3;
  integers.dtype = DType::kInt8;
  const std::string all =
      "resnet-18, resnet-34, resnet-50, resnet-101, resnet-152, mobilenet, squeezenet_v1.1, conv2d, depthwise, gemm";
  const ErrorCase cases[] = {
      {"resnet18",
       {},
       absl::StatusCode::kNotFound,
       "unknown network 'resnet18': did you mean 'resnet-18'? give an .onnx file or one of " + all},
      {"transformer",
       {},
       absl::StatusCode::kNotFound,
       "unknown network 'transformer': give an .onnx file or one of " + all},
      {"gemm", Extra("q", "1"), absl::StatusCode::kInvalidArgument,
       "network 'gemm' has no option 'q': its options are m, n, k, constant, bias, relu, seed"},
      {"gemm", Extra("m", "0"), absl::StatusCode::kInvalidArgument,
       "option 'm' of network 'gemm' cannot be '0': give a whole number from 1 to 1048576"},
      {"gemm", Extra("m", "ten"), absl::StatusCode::kInvalidArgument,
       "option 'm' of network 'gemm' cannot be 'ten': give a whole number from 1 to 1048576"},
      {"resnet-18", unknown_input, absl::StatusCode::kInvalidArgument,
       "network 'resnet-18' has no input 'image': its inputs are data"},
      {"resnet-18", wrong_shape, absl::StatusCode::kInvalidArgument,
       "input 'data' cannot have shape 224x224x3: give it as 1x224x224x3"},
      {"resnet-18", other_batch, absl::StatusCode::kInvalidArgument,
       "input 'data' cannot have shape 2x224x224x3: give it as 3x224x224x3"},
      {"resnet-18", integers, absl::StatusCode::kInvalidArgument,
       "built-in networks come in float32 and float16, not in int8"},
  };
  for (const ErrorCase& c : cases) {
    auto network = LoadModel(c.name, c.options);
    ASSERT_FALSE(network.ok()) << c.name;
    EXPECT_EQ(network.status().code(), c.code);
    EXPECT_EQ(std::string(network.status().message()), c.message);
  }
}

}  // namespace
}  // namespace diapason
