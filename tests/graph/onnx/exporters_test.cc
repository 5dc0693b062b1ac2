// The same network as PyTorch's two exporters write it: the tasks, and so the records, must be the same. What they
// write is copied from exports of ResNet-18, MobileNet-v2 and BERT by torch.onnx.export with dynamo=True and
// dynamo=False.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "../testing.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "model_builder.h"

namespace diapason {
namespace {

enum class Exporter { kDynamo, kTorchScript };

Array OneFloat(float value) { return Array::FromFloats({}, {value}); }
Array RandomWeights(Ints shape, uint64_t seed, double scale = 1, double shift = 0) {
  Array array = RandomArray({DType::kFloat32, std::move(shape)}, seed);
  for (int64_t i = 0; i < array.elements(); ++i) array.set(i, shift + scale * array.at(i));
  return array;
}

std::map<std::string, int> TasksOf(const ModelBuilder& model) {
  const auto imported = model.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  const Network optimised = Optimize(*imported, {}).value();
  ExpectSameResults(*imported, optimised, 1e-4);
  const Partition partition = PartitionNetwork(optimised).value();
  std::map<std::string, int> tasks;
  for (const Task& task : partition.tasks) tasks[task.name + " " + task.workload_key] = task.weight;
  return tasks;
}

// conv, norm, relu or relu6, twice, with a residual addition; the head of the network.
ModelBuilder ImageNetwork(Exporter exporter, bool relu6) {
  const bool dynamo = exporter == Exporter::kDynamo;
  ModelBuilder model(20);
  model.Input("image", {1, 3, 8, 8});
  // The older exporter folds batch norms into convolutions; the new one leaves them, or folds them too.
  const auto conv = [&](const std::string& x, const std::string& y, int64_t in, uint64_t seed) {
    Array weight = RandomWeights({4, in, 3, 3}, seed), scale = RandomWeights({4}, seed + 1, 0.2, 1),
          bias = RandomWeights({4}, seed + 2), mean = RandomWeights({4}, seed + 3),
          variance = RandomWeights({4}, seed + 4, 0.2, 1);
    const std::vector<std::pair<std::string, OnnxValue>> attributes = {
        {"dilations", Ints{1, 1}}, {"group", int64_t{1}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 1}}};
    if (dynamo) {
      auto all = attributes;
      all.push_back({"auto_pad", "NOTSET"});
      model.Initializer(y + ".w", weight).Node("Conv", {x, y + ".w"}, {y + "_conv"}, all);
      std::vector<std::string> inputs = {y + "_conv"};
      for (const auto& [name, value] : {std::pair{".s", scale}, {".b", bias}, {".m", mean}, {".v", variance}}) {
        model.Initializer(y + name, value);
        inputs.push_back(y + name);
      }
      model.Node("BatchNormalization", inputs, {y},
                 {{"epsilon", 1e-5f}, {"momentum", 0.9f}, {"training_mode", int64_t{0}}});
      return;
    }
    Array offset(DType::kFloat32, {4});
    for (int64_t c = 0; c < 4; ++c) {
      const double factor = scale.at(c) / std::sqrt(variance.at(c) + 1e-5);
      for (int64_t i = 0; i < weight.elements() / 4; ++i)
        weight.set(c * weight.elements() / 4 + i, weight.at(c * weight.elements() / 4 + i) * factor);
      offset.set(c, bias.at(c) - mean.at(c) * factor);
    }
    model.Initializer(y + ".w", weight).Initializer(y + ".b", offset);
    auto all = attributes;
    all.push_back({"kernel_shape", Ints{3, 3}});
    model.Node("Conv", {x, y + ".w", y + ".b"}, {y}, all);
  };
  const auto activate = [&](const std::string& x, const std::string& y) {
    if (!relu6) {
      model.Node("Relu", {x}, {y});
    } else if (dynamo) {
      model.Node("Clip", {x, "low", "high"}, {y});
    } else {
      model.Node("Constant", {}, {y + ".low"}, {{"value", OneFloat(0)}})
          .Node("Constant", {}, {y + ".high"}, {{"value", OneFloat(6)}});
      model.Node("Clip", {x, y + ".low", y + ".high"}, {y});
    }
  };
  if (relu6 && dynamo) model.Initializer("low", OneFloat(0)).Initializer("high", OneFloat(6));
  conv("image", "norm1", 3, 10);
  activate("norm1", "relu1");
  conv("relu1", "norm2", 4, 20);
  dynamo ? model.Node("Add", {"norm2", "relu1"}, {"sum"}) : model.Node("Add", {"relu1", "norm2"}, {"sum"});
  activate("sum", "relu2");
  model.Initializer("fc.w", RandomWeights({5, 4}, 30)).Initializer("fc.b", RandomWeights({5}, 31));
  if (dynamo) {
    // A mean over the image, "as_strided" by known indices, and a view.
    Array places(DType::kInt64, {1, 4, 1, 1});
    for (int64_t i = 0; i < 4; ++i) places.set_int(i, i);
    model.Initializer("axes", IntList({-1, -2}))
        .Initializer("flat", IntList({-1}))
        .Initializer("places", places)
        .Initializer("rows", IntList({1, 4}));
    model
        .Node("ReduceMean", {"relu2", "axes"}, {"mean"},
              {{"keepdims", int64_t{1}}, {"noop_with_empty_axes", int64_t{0}}})
        .Node("Reshape", {"mean", "flat"}, {"line"}, {{"allowzero", int64_t{0}}})
        .Node("Gather", {"line", "places"}, {"as_strided"}, {{"axis", int64_t{0}}})
        .Node("Reshape", {"as_strided", "rows"}, {"view"}, {{"allowzero", int64_t{1}}});
  } else {
    model.Node("GlobalAveragePool", {"relu2"}, {"mean"}).Node("Flatten", {"mean"}, {"view"}, {{"axis", int64_t{1}}});
  }
  return model
      .Node("Gemm", {"view", "fc.w", "fc.b"}, {"logits"}, {{"alpha", 1.f}, {"beta", 1.f}, {"transB", int64_t{1}}})
      .Output("logits");
}

TEST(Exporters, AResidualNetworkHasTheSameTasks) {
  EXPECT_EQ(TasksOf(ImageNetwork(Exporter::kDynamo, false)), TasksOf(ImageNetwork(Exporter::kTorchScript, false)));
}

TEST(Exporters, ANetworkOfRelu6HasTheSameTasks) {
  EXPECT_EQ(TasksOf(ImageNetwork(Exporter::kDynamo, true)), TasksOf(ImageNetwork(Exporter::kTorchScript, true)));
}

// Layers of attention with a mask of the input's real positions.
class AttentionNetwork {
 public:
  // Keys are scaled in front of the swap of their last axes, or behind it.
  enum class KeyScale { kBehindSwap, kBeforeSwap };
  explicit AttentionNetwork(Exporter exporter, KeyScale scale = KeyScale::kBehindSwap)
      : dynamo_(exporter == Exporter::kDynamo), scale_(scale) {}

  ModelBuilder Build() {
    model_.Input("x", {1, 6, 8}).Input("mask", {1, 6}, DType::kInt64);
    Mask();
    const std::string last = Layer(Layer("x", 1), 2);
    model_.Node("Identity", {last}, {"y"});
    // The pooled output: the first position.
    model_.Initializer("first", IntScalar(0)).Node("Gather", {"y", "first"}, {"pooled"}, {{"axis", int64_t{1}}});
    return model_.Output("y").Output("pooled");
  }

 private:
  static Array IntScalar(int64_t value) {
    Array array(DType::kInt64, {});
    array.set_int(0, value);
    return array;
  }

  std::string Constant(const std::string& name, const Array& value) {
    if (dynamo_) {
      model_.Initializer(name, value);
    } else {
      model_.Node("Constant", {}, {name}, {{"value", value}});
    }
    return name;
  }

  // Real positions, of shape (1, 1, 6, 6).
  void Mask() {
    model_.Node("Cast", {"mask"}, {"real"}, {{"to", int64_t{9}}});
    Array all(DType::kBool, {1, 1, 6, 1});
    for (int64_t i = 0; i < 6; ++i) all.set_int(i, 1);
    if (dynamo_) {
      Array places(DType::kInt64, {1, 1, 1, 6, 2});
      for (int64_t i = 0; i < 6; ++i) places.set_int(2 * i + 1, i);
      model_.Initializer("places", places).Initializer("all", all);
      model_.Node("GatherND", {"real", "places"}, {"rows"}, {{"batch_dims", int64_t{0}}})
          .Node("And", {"all", "rows"}, {"allowed"});
      return;
    }
    model_.Node("Shape", {"real"}, {"shape"}).Node("Constant", {}, {"one"}, {{"value", IntScalar(1)}});
    model_.Node("Gather", {"shape", "one"}, {"length"}, {{"axis", int64_t{0}}})
        .Node("Flatten", {"real"}, {"flat"}, {{"axis", int64_t{2}}});
    Array zeros(DType::kInt64, {1, 1, 1, 1}), counting(DType::kInt64, {6});
    for (int64_t i = 0; i < 6; ++i) counting.set_int(i, i);
    model_.Node("Constant", {}, {"batch"}, {{"value", zeros}}).Node("Mul", {"batch", "length"}, {"offset"});
    model_.Node("Constant", {}, {"position"}, {{"value", counting}}).Node("Add", {"position", "offset"}, {"places"});
    model_.Node("Reshape", {"flat", "line"}, {"flat1"}).Initializer("line", IntList({-1}));
    model_.Node("Gather", {"flat1", "places"}, {"rows"}, {{"axis", int64_t{0}}})
        .Node("Cast", {"rows"}, {"rows1"}, {{"to", int64_t{9}}});
    model_.Initializer("all", all).Node("And", {"all", "rows1"}, {"both"});
    model_.Node("Constant", {}, {"square"}, {{"value", IntList({1, 1, 6, 6})}})
        .Node("Expand", {"both", "square"}, {"allowed"});
  }

  std::string Linear(const std::string& x, const std::string& y, int seed) {
    model_.Initializer(y + ".w", RandomWeights({8, 8}, seed)).Initializer(y + ".b", RandomWeights({8}, seed + 1));
    model_.Node("MatMul", {x, y + ".w"}, {y + "_product"});
    dynamo_ ? model_.Node("Add", {y + "_product", y + ".b"}, {y}) : model_.Node("Add", {y + ".b", y + "_product"}, {y});
    return y;
  }

  std::string Heads(const std::string& x, const Ints& perm) {
    model_.Node("Reshape", {x, Constant(x + ".heads", IntList({1, 6, -1, 4}))}, {x + "_view"});
    model_.Node("Transpose", {x + "_view"}, {x + "_heads"}, {{"perm", perm}});
    return x + "_heads";
  }

  // Keys with the last two axes swapped: by a transpose, or through three axes.
  std::string Keys(const std::string& k) {
    if (!dynamo_) return Heads(k, {0, 2, 3, 1});
    std::string heads = Heads(k, {0, 2, 1, 3});
    if (scale_ == KeyScale::kBeforeSwap) {
      model_.Node("Mul", {heads, Constant(k + ".root", OneFloat(0.7f))}, {k + "_scaled"});
      heads = k + "_scaled";
    }
    model_.Node("Reshape", {heads, Constant(k + ".three", IntList({-1, 6, 4}))}, {k + "_three"});
    model_.Node("Transpose", {k + "_three"}, {k + "_swapped"}, {{"perm", Ints{0, 2, 1}}});
    model_.Node("Reshape", {k + "_swapped", Constant(k + ".four", IntList({1, 2, 4, 6}))}, {k + "_keys"});
    return k + "_keys";
  }

  // -inf where there is nothing: once, or in each layer.
  std::string Bias(const std::string& layer) {
    if (dynamo_ && layer != "l1") return "l1_bias";
    const std::string zero = Constant(layer + ".zero", OneFloat(0)), low = Constant(layer + ".low", OneFloat(-3.4e38f));
    model_.Node("Where", {"allowed", zero, low}, {layer + "_bias"});
    return layer + "_bias";
  }

  std::string Layer(const std::string& x, int number) {
    const std::string l = "l" + std::to_string(number);
    const std::string q = Heads(Linear(x, l + "q", 100 * number), {0, 2, 1, 3}),
                      k = Keys(Linear(x, l + "k", 100 * number + 10)),
                      v = Heads(Linear(x, l + "v", 100 * number + 20), {0, 2, 1, 3});
    model_.Node("Mul", {q, Constant(l + ".root", OneFloat(0.7f))}, {l + "_q"});
    const bool scaled = scale_ == KeyScale::kBeforeSwap;
    if (!scaled) model_.Node("Mul", {k, Constant(l + ".root2", OneFloat(0.7f))}, {l + "_k"});
    model_.Node("MatMul", {l + "_q", scaled ? k : l + "_k"}, {l + "_scores"})
        .Node("Add", {l + "_scores", Bias(l)}, {l + "_masked"});
    model_.Node("Softmax", {l + "_masked"}, {l + "_soft"}, {{"axis", int64_t{-1}}})
        .Node("IsNaN", {l + "_soft"}, {l + "_nan"});
    // the older exporter's has an axis
    const std::string zero = dynamo_ ? "l1.zero" : Constant(l + ".zero1", Array::FromFloats({1}, {0}));
    model_.Node("Where", {l + "_nan", zero, l + "_soft"}, {l + "_weights"})
        .Node("MatMul", {l + "_weights", v}, {l + "_context"});
    model_.Node("Transpose", {l + "_context"}, {l + "_back"}, {{"perm", Ints{0, 2, 1, 3}}});
    model_.Node("Reshape", {l + "_back", Constant(l + ".rows", dynamo_ ? IntList({1, 6, -1}) : IntList({1, 6, 8}))},
                {l + "_rows"});
    model_.Node("Add", {Linear(l + "_rows", l + "o", 100 * number + 30), x}, {l + "_sum"});
    // T5's norm: one over the root of the mean square.
    model_.Node("Mul", {l + "_sum", l + "_sum"}, {l + "_square"}).Initializer(l + ".last", IntList({-1}));
    model_.Node("ReduceMean", {l + "_square", l + ".last"}, {l + "_mean"}, {{"keepdims", int64_t{1}}});
    model_.Node("Sqrt", {l + "_mean"}, {l + "_size"});
    dynamo_ ? model_.Node("Reciprocal", {l + "_size"}, {l + "_factor"})
            : model_.Node("Div", {Constant(l + ".one", OneFloat(1)), l + "_size"}, {l + "_factor"});
    model_.Node("Mul", {l + "_sum", l + "_factor"}, {l + "_norm"});
    return l + "_norm";
  }

  const bool dynamo_;
  const KeyScale scale_;
  ModelBuilder model_{20};
};

TEST(Exporters, LayersOfAttentionHaveTheSameTasks) {
  EXPECT_EQ(TasksOf(AttentionNetwork(Exporter::kDynamo).Build()),
            TasksOf(AttentionNetwork(Exporter::kTorchScript).Build()));
}

// Of ViT and DeiT.
TEST(Exporters, KeysAreScaledBeforeOrAfterTheyAreTransposed) {
  EXPECT_EQ(TasksOf(AttentionNetwork(Exporter::kDynamo, AttentionNetwork::KeyScale::kBeforeSwap).Build()),
            TasksOf(AttentionNetwork(Exporter::kTorchScript).Build()));
}

// A block of DeiT: attention by one product for queries, keys and values, and two layers with GELU between them.
ModelBuilder VisionBlock(Exporter exporter) {
  const bool dynamo = exporter == Exporter::kDynamo;
  ModelBuilder model(dynamo ? 20 : 17);
  model.Input("x", {1, 5, 8});
  const auto linear = [&](const std::string& x, const std::string& y, const Ints& weight, int seed) {
    model.Initializer(y + ".w", RandomWeights(weight, seed))
        .Initializer(y + ".b", RandomWeights({weight[1]}, seed + 1));
    model.Node("MatMul", {x, y + ".w"}, {y + "_product"});
    dynamo ? model.Node("Add", {y + "_product", y + ".b"}, {y}) : model.Node("Add", {y + ".b", y + "_product"}, {y});
  };
  linear("x", "qkv", {8, 24}, 1);
  model.Initializer("split", IntList({1, 5, 3, 2, 4})).Node("Reshape", {"qkv", "split"}, {"apart"});
  model.Node("Transpose", {"apart"}, {"three"}, {{"perm", Ints{2, 0, 3, 1, 4}}});
  for (int64_t i = 0; i < 4; ++i) model.Initializer(std::to_string(i), IntList({i}));
  model.Initializer("ones", IntList({1, 1, 1}));
  if (!dynamo) model.Node("Split", {"three", "ones"}, {"q5", "k5", "v5"}, {{"axis", int64_t{0}}});
  for (const auto& [name, i] : {std::pair{"q", 0}, {"k", 1}, {"v", 2}}) {
    const std::string part = std::string(name) + "5";
    if (dynamo) model.Node("Slice", {"three", std::to_string(i), std::to_string(i + 1), "0"}, {part});
    model.Node("Squeeze", {part, "0"}, {name});
  }
  model.Initializer("root", OneFloat(0.7f));
  if (dynamo) {
    model.Initializer("heads", IntList({-1, 5, 4})).Initializer("batch", IntList({1, 2, 4, 5}));
    model.Node("Reshape", {"k", "heads"}, {"k3"}).Node("Transpose", {"k3"}, {"k3t"}, {{"perm", Ints{0, 2, 1}}});
    model.Node("Reshape", {"k3t", "batch"}, {"kt"});
  } else {
    model.Node("Transpose", {"k"}, {"kt"}, {{"perm", Ints{0, 1, 3, 2}}});
  }
  model.Node("Mul", {"q", "root"}, {"qs"}).Node("Mul", {"kt", "root"}, {"ks"});
  model.Node("MatMul", {"qs", "ks"}, {"scores"}).Node("Softmax", {"scores"}, {"soft"}, {{"axis", int64_t{-1}}});
  model.Node("MatMul", {"soft", "v"}, {"context"});
  model.Node("Transpose", {"context"}, {"back"}, {{"perm", Ints{0, 2, 1, 3}}}).Initializer("rows", IntList({1, 5, 8}));
  model.Node("Reshape", {"back", "rows"}, {"joined"});
  linear("joined", "out", {8, 8}, 3);
  model.Node("Add", {"x", "out"}, {"sum"});
  linear("sum", "wide", {8, 16}, 5);
  if (dynamo) {
    model.Node("Gelu", {"wide"}, {"gelu"}, {{"approximate", "none"}});
  } else {
    model.Initializer("sqrt2", OneFloat(1.4142135f))
        .Initializer("one", OneFloat(1))
        .Initializer("half", OneFloat(0.5f));
    model.Node("Div", {"wide", "sqrt2"}, {"scaled"})
        .Node("Erf", {"scaled"}, {"erf"})
        .Node("Add", {"erf", "one"}, {"cdf"});
    model.Node("Mul", {"wide", "cdf"}, {"twice"}).Node("Mul", {"twice", "half"}, {"gelu"});
  }
  linear("gelu", "narrow", {16, 8}, 7);
  return model.Node("Add", {"sum", "narrow"}, {"y"}).Output("y");
}

TEST(Exporters, ABlockOfAVisionTransformerHasTheSameTasks) {
  EXPECT_EQ(TasksOf(VisionBlock(Exporter::kDynamo)), TasksOf(VisionBlock(Exporter::kTorchScript)));
}

// Places that follow each other are a slice; what they were chosen by is not read.
// The new exporter folds a normalization in float32 and leaves the results so; 1.00390625 is not a bfloat16, and 1 the
// nearest one.
TEST(Exporters, WeightsOfABfloat16ConvolutionMayBeFloat32) {
  for (const char* op : {"Conv", "ConvTranspose"}) {
    ModelBuilder model(20);
    model.Input("x", {1, 1, 1, 2}, DType::kBfloat16).Initializer("w", Array::FromFloats({1, 1, 1, 1}, {1.00390625F}));
    model.Initializer("b", Array::FromFloats({1}, {2.0078125F})).Node(op, {"x", "w", "b"}, {"y"});
    model.Output("y", DType::kBfloat16);
    const auto network = model.Import();
    ASSERT_TRUE(network.ok()) << network.status();
    Array x(DType::kBfloat16, {1, 1, 1, 2}), y(DType::kBfloat16, {1, 1, 1, 2});
    x.set(0, 4);
    x.set(1, -2);
    y.set(0, 6);
    y.set(1, 0);
    ExpectNear(EvaluateNetwork(*network, {x}).value()[0], y, 0);
  }
}

TEST(Exporters, KnownPlacesThatFollowEachOtherAreSlices) {
  const auto gather = [](const std::vector<int64_t>& places) {
    ModelBuilder model(13);
    model.Input("x", {5, 4})
        .Initializer("places", IntList(places))
        .Node("Gather", {"x", "places"}, {"y"}, {{"axis", int64_t{1}}})
        .Output("y");
    return model.Import().value();
  };
  for (const std::vector<int64_t>& places : {std::vector<int64_t>{1, 2}, {0, 2}, {-1}, {0, 1, 2, 3}, {-3, -2, -1}}) {
    EXPECT_EQ(CountOps(gather(places), "gather"), 0);
  }
  for (const std::vector<int64_t>& places : {std::vector<int64_t>{2, 1}, {0, 0}, {0, 1, 3}, {3, 0}}) {
    EXPECT_EQ(CountOps(gather(places), "gather"), 1);
  }
  const Array x = Counting({5, 4});
  ExpectNear(EvaluateNetwork(gather({-3, -2, -1}), {x}).value()[0], EvaluateNetwork(gather({1, 2, 3}), {x}).value()[0],
             0);
  EXPECT_EQ(EvaluateNetwork(gather({0, 2}), {x}).value()[0].at(1), 3);
}

}  // namespace
}  // namespace diapason
