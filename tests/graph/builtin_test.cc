#include "compiler/graph/builtin.h"

#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "testing.h"

namespace diapason {
namespace {

std::string AllNames() {
  return "resnet-18, resnet-34, resnet-50, resnet-101, resnet-152, mobilenet, squeezenet_v1.1, mobilenet_v2, "
         "mobilenet_v3, efficientnet-b0, vgg-16, densenet-121, inception_v3, convnext-tiny, swin-tiny, "
         "vit-b16, resnet3d-18, unet-small, yolo-small, bert-base, gpt2, llama-tiny, t5-encoder, "
         "whisper-encoder, lstm-tagger, conv2d, depthwise, gemm, attention, layer_norm";
}

TEST(Builtin, TheTableListsAllNetworks) {
  std::vector<std::string> names;
  for (const BuiltinInfo& info : BuiltinNetworks()) {
    names.push_back(info.name);
    EXPECT_FALSE(info.help.empty());
    for (const BuiltinOption& option : info.options) EXPECT_FALSE(option.help.empty());
  }
  EXPECT_EQ(absl::StrJoin(names, ", "), AllNames());
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

TEST(Builtin, OperatorsOfIntegersReadEightBits) {
  ModelOptions options;
  options.extra = {{"int8", "1"}, {"bias", "1"}};
  for (const std::string name : {"gemm", "conv2d"}) {
    const Network n = LoadOptimized(name, options).value();
    const Node& product = n.nodes[0];
    EXPECT_EQ(product.op, name);
    EXPECT_EQ(n.tensors[product.inputs[0]].type.dtype, name == "gemm" ? DType::kInt8 : DType::kUint8);
    EXPECT_EQ(n.tensors[product.inputs[1]].type.dtype, DType::kInt8);
    EXPECT_EQ(n.tensors[product.output].type.dtype, DType::kInt32);
    EXPECT_EQ(n.tensors[n.outputs[0]].type.dtype, name == "gemm" ? DType::kInt32 : DType::kUint8);
  }
}

// What keeps the large networks' weights few where their own sizes do not matter.
std::map<std::string, std::string> FewWeights(const BuiltinInfo& network) {
  std::map<std::string, std::string> extra;
  for (const BuiltinOption& option : network.options) {
    if (option.name == "vocab") extra["vocab"] = "99";
    if (option.name == "layers") extra["layers"] = "1";
    if (option.name == "classes") extra["classes"] = "10";
  }
  if (network.name == "vgg-16") extra["width"] = "25";
  return extra;
}

// Every worker checks it of what it is sent.
TEST(Builtin, TasksOfAllNetworksReadWhatIsThere) {
  for (const BuiltinInfo& network : BuiltinNetworks()) {
    if (network.name == "resnet-101" || network.name == "resnet-152") continue;  // the tasks of resnet-50, more often
    for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
      ModelOptions options;
      options.layout = layout;
      options.extra = FewWeights(network);
      const FusionChoices fusion = FindFusionChoices(LoadOptimized(network.name, options).value()).value();
      EXPECT_FALSE(fusion.partition.tasks.empty());
      for (const Task& task : fusion.partition.tasks)
        EXPECT_EQ(CheckAccesses(ParseDag(SerializeDag(task.dag)).value()), absl::OkStatus())
            << network.name << " " << task.name;
    }
  }
}

// Products, convolutions and normalisations as the published networks have them; passes may merge some of them
// afterwards.
TEST(Builtin, NetworksHaveTheirLayersAndArePartitionedIntoTasksOfThem) {
  struct Case {
    std::string name;
    std::map<std::string, std::string> extra;
    std::map<std::string, int> nodes;  // by operator, as built
    int tasks;                         // different products and convolutions, at least
  };
  const std::map<std::string, std::string> two = {{"layers", "2"},        {"hidden", "24"}, {"heads", "4"},
                                                  {"intermediate", "40"}, {"vocab", "50"},  {"seq", "8"}};
  auto decode = two, sound = two;
  decode["decode"] = "1";
  sound.erase("vocab");
  sound.erase("seq");
  sound["frames"] = "32";
  const std::map<std::string, std::string> image = {{"image", "64"}, {"width", "10"}, {"classes", "10"}};
  auto windows = image, pixels = image, vision = two;
  windows["window"] = "2";
  pixels["image"] = "75";
  vision.erase("vocab");
  vision.erase("seq");
  vision["image"] = "32";
  const Case cases[] = {
      // Six products by weights and two of attention in a layer, with one of the pooler.
      {"bert-base", two, {{"matmul", 17}, {"softmax", 2}, {"layer_norm", 5}}, 4},
      {"gpt2", two, {{"matmul", 13}, {"softmax", 2}, {"layer_norm", 5}}, 4},
      {"gpt2", decode, {{"matmul", 13}, {"softmax", 2}, {"layer_norm", 5}}, 4},
      {"llama-tiny", two, {{"matmul", 19}, {"softmax", 2}, {"rms_norm", 5}}, 4},
      {"llama-tiny", decode, {{"matmul", 19}, {"softmax", 2}, {"rms_norm", 5}}, 4},
      {"t5-encoder", two, {{"matmul", 16}, {"softmax", 2}, {"rms_norm", 5}}, 4},
      {"whisper-encoder", sound, {{"conv2d", 2}, {"matmul", 16}, {"softmax", 2}, {"layer_norm", 5}}, 4},
      {"vit-b16", vision, {{"conv2d", 1}, {"matmul", 12}, {"gemm", 1}, {"softmax", 2}, {"layer_norm", 5}}, 4},
      {"swin-tiny", windows, {{"conv2d", 1}, {"matmul", 75}, {"gemm", 1}, {"softmax", 12}, {"layer_norm", 29}}, 20},
      {"attention",
       {{"heads", "4"}, {"kv_heads", "2"}, {"queries", "5"}, {"keys", "9"}, {"causal", "1"}},
       {{"matmul", 2}, {"softmax", 1}},
       1},
      {"layer_norm", {{"rows", "5"}}, {{"layer_norm", 1}}, 0},
      {"lstm-tagger", {{"seq", "6"}, {"hidden", "8"}, {"vocab", "50"}}, {{"matmul", 13}, {"log_softmax", 1}}, 3},
      {"mobilenet_v2", image, {{"conv2d", 52}, {"gemm", 1}}, 20},
      {"mobilenet_v3", image, {{"conv2d", 62}, {"gemm", 2}}, 20},
      {"efficientnet-b0", image, {{"conv2d", 81}, {"gemm", 1}}, 20},
      {"vgg-16", image, {{"conv2d", 13}, {"gemm", 3}, {"max_pool", 5}}, 8},
      {"densenet-121", image, {{"conv2d", 120}, {"gemm", 1}, {"avg_pool", 3}}, 60},
      {"inception_v3", pixels, {{"conv2d", 94}, {"gemm", 1}, {"avg_pool", 9}, {"max_pool", 4}}, 40},
      {"convnext-tiny", image, {{"conv2d", 22}, {"matmul", 36}, {"gemm", 1}, {"layer_norm", 23}}, 12},
      {"unet-small", image, {{"conv2d", 18}, {"max_pool", 3}}, 12},
      {"yolo-small", image, {{"conv2d", 60}, {"max_pool", 3}}, 20},
      {"resnet3d-18", {{"image", "32"}, {"frames", "8"}, {"width", "10"}}, {{"conv3d", 20}, {"gemm", 1}}, 10},
  };
  for (const Case& c : cases) {
    ModelOptions options;
    options.extra = c.extra;
    const auto network = BuiltinNetwork(c.name, options);
    ASSERT_TRUE(network.ok()) << network.status();
    std::map<std::string, int> nodes;
    for (const auto& [op, count] : c.nodes) nodes[op] = CountOps(*network, op);
    EXPECT_EQ(nodes, c.nodes) << c.name;
    const auto partition = PartitionNetwork(Optimize(*network, options).value());
    ASSERT_TRUE(partition.ok()) << partition.status();
    int products = 0;
    for (const Task& task : partition->tasks)
      for (const char* kind : {"conv2d", "conv3d", "depthwise", "gemm", "matmul", "attention"})
        if (task.name.find(kind) != std::string::npos) {
          ++products;
          break;
        }
    EXPECT_GE(products, c.tasks) << c.name;
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
  const ModelOptions odd_heads = Extra("hidden", "40");
  ModelOptions odd_hidden = Extra("hidden", "3");
  odd_hidden.extra["heads"] = "1";
  const std::string all = AllNames();
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
       "network 'gemm' has no option 'q': its options are m, n, k, constant, bias, relu, int8, seed"},
      {"gemm", Extra("sede", "1"), absl::StatusCode::kInvalidArgument,
       "network 'gemm' has no option 'sede': did you mean 'seed'? its options are m, n, k, constant, bias, relu, int8, "
       "seed"},
      {"attention", Extra("kv_heads", "5"), absl::StatusCode::kInvalidArgument,
       "option 'kv_heads' of network 'attention' cannot be 5: it must divide 'heads', which is 12"},
      {"gemm", Extra("m", "0"), absl::StatusCode::kInvalidArgument,
       "option 'm' of network 'gemm' cannot be '0': give a whole number from 1 to 1048576"},
      {"gemm", Extra("m", "ten"), absl::StatusCode::kInvalidArgument,
       "option 'm' of network 'gemm' cannot be 'ten': give a whole number from 1 to 1048576"},
      {"bert-base", Extra("heads", "5"), absl::StatusCode::kInvalidArgument,
       "option 'heads' of network 'bert-base' cannot be 5: it must divide 'hidden', which is 768"},
      {"llama-tiny", Extra("kv_heads", "3"), absl::StatusCode::kInvalidArgument,
       "option 'kv_heads' of network 'llama-tiny' cannot be 3: it must divide 'heads', which is 8"},
      {"llama-tiny", odd_heads, absl::StatusCode::kInvalidArgument,
       "option 'heads' of network 'llama-tiny' cannot be 8: with 'hidden' 40 a head has 5 elements, an odd number, "
       "which a rotary embedding "
       "cannot halve"},
      {"whisper-encoder", odd_hidden, absl::StatusCode::kInvalidArgument,
       "option 'hidden' of network 'whisper-encoder' cannot be 3: give an even number, of sines and as many cosines of "
       "the place"},
      {"vit-b16", Extra("image", "100"), absl::StatusCode::kInvalidArgument,
       "option 'patch' of network 'vit-b16' cannot be 16: it must divide 'image', which is 100"},
      {"swin-tiny", Extra("image", "256"), absl::StatusCode::kInvalidArgument,
       "option 'image' of network 'swin-tiny' cannot be 256: give a multiple of 224, 32 times 'window'"},
      {"unet-small", Extra("image", "100"), absl::StatusCode::kInvalidArgument,
       "option 'image' of network 'unet-small' cannot be 100: give a multiple of 8"},
      {"yolo-small", Extra("image", "100"), absl::StatusCode::kInvalidArgument,
       "option 'image' of network 'yolo-small' cannot be 100: give a multiple of 32"},
      {"resnet-18", unknown_input, absl::StatusCode::kInvalidArgument,
       "network 'resnet-18' has no input 'image': its inputs are data"},
      {"resnet-18", wrong_shape, absl::StatusCode::kInvalidArgument,
       "input 'data' cannot have shape 224x224x3: give it as 1x224x224x3"},
      {"resnet-18", other_batch, absl::StatusCode::kInvalidArgument,
       "input 'data' cannot have shape 2x224x224x3: give it as 3x224x224x3"},
      {"resnet-18", integers, absl::StatusCode::kInvalidArgument,
       "built-in networks come in float32, float16 or bfloat16, not in int8"},
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
