// What operators looked like in older opsets: the cases of libonnx-testdata know the newest only.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "../testing.h"
#include "compiler/graph/onnx/import.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

struct OpsetCase {
  const char* name;
  const char* op;
  std::vector<int64_t> opsets;
  Ints shape;  // of x, which counts from 1
  std::vector<std::pair<std::string, OnnxValue>> attributes;
  std::vector<Array> constants;  // further inputs
  Array want;                    // of the first output
  std::vector<std::string> outputs = {"y"};
};

Array Floats(Ints shape, const std::vector<float>& values) { return Array::FromFloats(std::move(shape), values); }

Array Sizes(int64_t of_one_axis) {
  Array sizes(DType::kInt64, {1});
  sizes.set_int(0, of_one_axis);
  return sizes;
}

std::vector<OpsetCase> OpsetCases() {
  return {
      {"ClipAttributes", "Clip", {7, 10}, {4}, {{"min", 2.f}, {"max", 3.f}}, {}, Floats({4}, {2, 2, 3, 3})},
      {"ClipOneAttribute", "Clip", {7, 10}, {4}, {{"max", 3.f}}, {}, Floats({4}, {1, 2, 3, 3})},
      {"PadAttributes", "Pad", {7, 10}, {2}, {{"pads", Ints{1, 0}}, {"value", 9.f}}, {}, Floats({3}, {9, 1, 2})},
      {"PadReflect",
       "Pad",
       {7, 10},
       {3},
       {{"pads", Ints{2, 1}}, {"mode", "reflect"}},
       {},
       Floats({6}, {3, 2, 1, 2, 3, 2})},
      {"SqueezeAttributes", "Squeeze", {7, 11}, {1, 2, 1}, {{"axes", Ints{2}}}, {}, Floats({1, 2}, {1, 2})},
      {"SqueezeAll", "Squeeze", {7, 11, 13}, {1, 2, 1}, {}, {}, Floats({2}, {1, 2})},
      {"UnsqueezeAttributes", "Unsqueeze", {7, 11}, {2}, {{"axes", Ints{0, 2}}}, {}, Floats({1, 2, 1}, {1, 2})},
      {"SliceAttributes",
       "Slice",
       {7, 9},
       {2, 3},
       {{"axes", Ints{1}}, {"starts", Ints{-2}}, {"ends", Ints{INT64_MAX}}},
       {},
       Floats({2, 2}, {2, 3, 5, 6})},
      {"SplitEqual", "Split", {7, 11, 13}, {4}, {}, {}, Floats({2}, {1, 2}), {"y", "z"}},
      {"SplitAttributes", "Split", {7, 11}, {4}, {{"split", Ints{3, 1}}}, {}, Floats({3}, {1, 2, 3}), {"y", "z"}},
      {"ReduceSumAttributes",
       "ReduceSum",
       {7, 11},
       {2, 2},
       {{"axes", Ints{0}}, {"keepdims", int64_t{0}}},
       {},
       Floats({2}, {4, 6})},
      {"ReduceMeanAll", "ReduceMean", {7, 11, 13, 17}, {2, 2}, {}, {}, Floats({1, 1}, {2.5})},
      // exp(-3) and so on, over all of the last two axes.
      {"SoftmaxFlattens",
       "Softmax",
       {7, 11},
       {1, 2, 2},
       {},
       {},
       Floats({1, 2, 2}, {0.0320586f, 0.0871443f, 0.2368828f, 0.6439143f})},
      {"SoftmaxOfOneAxis",
       "Softmax",
       {13, 17},
       {1, 2, 2},
       {},
       {},
       Floats({1, 2, 2}, {0.2689414f, 0.7310586f, 0.2689414f, 0.7310586f})},
      {"SoftmaxOfTheLastAxisFlattensToTheSame",
       "Softmax",
       {7, 11, 13},
       {1, 2, 2},
       {{"axis", int64_t{2}}},
       {},
       Floats({1, 2, 2}, {0.2689414f, 0.7310586f, 0.2689414f, 0.7310586f})},
      {"DropoutRatioAttribute", "Dropout", {7, 10}, {2}, {{"ratio", 0.5f}}, {}, Floats({2}, {1, 2})},
      {"DropoutUnreadMask", "Dropout", {7, 10, 13}, {2}, {}, {}, Floats({2}, {1, 2}), {"y", "mask"}},
      {"BatchNormalization",
       "BatchNormalization",
       {7, 9, 14, 15},
       {1, 2, 2},
       {{"epsilon", 0.f}},
       {Floats({2}, {1, 2}), Floats({2}, {0, 1}), Floats({2}, {1, 3}), Floats({2}, {1, 4})},
       Floats({1, 2, 2}, {0, 1, 1, 2})},
      {"BatchNormalizationOfElements",
       "BatchNormalization",
       {7, 8},
       {2, 1, 2},
       {{"epsilon", 0.f}, {"spatial", int64_t{0}}},
       {Floats({1, 2}, {1, 2}), Floats({1, 2}, {0, 1}), Floats({1, 2}, {1, 4}), Floats({1, 2}, {1, 4})},
       Floats({2, 1, 2}, {0, -1, 2, 1})},
      {"GemmBroadcasts",
       "Gemm",
       {7, 9, 11, 13},
       {2, 2},
       {{"alpha", 0.5f}, {"beta", 2.f}, {"transA", int64_t{1}}},
       {Floats({2, 1}, {1, 1}), Floats({1}, {3})},
       Floats({2, 1}, {8, 9})},
      {"GemmWithoutC",
       "Gemm",
       {11, 13},
       {2, 2},
       {{"transB", int64_t{1}}},
       {Floats({1, 2}, {1, 10})},
       Floats({2, 1}, {21, 43})},
      {"FlattenNegative", "Flatten", {11, 13}, {2, 1, 2}, {{"axis", int64_t{-1}}}, {}, Floats({2, 2}, {1, 2, 3, 4})},
      {"PRelu", "PRelu", {7, 9, 16}, {2}, {}, {Floats({1}, {5})}, Floats({2}, {1, 2})},
      {"Concat", "Concat", {7, 11, 13}, {2}, {{"axis", int64_t{0}}}, {Floats({1}, {7})}, Floats({3}, {1, 2, 7})},
      {"HardSigmoid", "HardSigmoid", {7, 17}, {2}, {{"alpha", 0.25f}, {"beta", 0.f}}, {}, Floats({2}, {0.25, 0.5})},
      {"SumOfThree", "Sum", {8, 13}, {2}, {}, {Floats({1}, {10}), Floats({2}, {1, 2})}, Floats({2}, {12, 14})},
      {"MeanOfTwo", "Mean", {8, 13}, {2}, {}, {Floats({2}, {3, 4})}, Floats({2}, {2, 3})},
  };
}

std::vector<OpsetCase> ResizeCases() {
  return {
      // Taps at -1, 0, 1 and 2 around 0.5 with weights 1/8, 3/8, 3/8 and 1/8; the edge goes on.
      // Element 6 / 1.2 is the fifth, though 1.2 is larger as a float32.
      {"ResizeByAScaleThatIsRounded",
       "Resize",
       {10},
       {1, 10},
       {{"mode", "nearest"}},
       {Floats({2}, {1, 1.2f})},
       Floats({1, 12}, {1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10})},
      // Of opset 10: where an axis shrinks, the nearest element is the next one.
      {"ResizeDownOfOpset10",
       "Resize",
       {10},
       {1, 4},
       {{"mode", "nearest"}},
       {Floats({2}, {1, 0.6f})},
       Floats({1, 2}, {1, 3})},
      // Sizes give exact scales, and so ties between two elements: element 9 of 19 lies at 6.5 of 14.
      {"ResizeToSizesRoundsTiesDown",
       "Resize",
       {11, 19},
       {14},
       {{"mode", "nearest"}},
       {Floats({0}, {}), Floats({0}, {}), Sizes(19)},
       Floats({19}, {1, 2, 2, 3, 4, 5, 5, 6, 7, 7, 8, 9, 10, 10, 11, 12, 13, 13, 14})},
      {"ResizeToSizesRoundsTiesUp",
       "Resize",
       {11, 19},
       {7},
       {{"mode", "nearest"}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "round_prefer_ceil"}},
       {Floats({0}, {}), Floats({0}, {}), Sizes(2)},
       Floats({2}, {1, 5})},
      {"ResizeSmoothed",
       "Resize",
       {18, 19},
       {4},
       {{"mode", "linear"}, {"antialias", int64_t{1}}},
       {Floats({0}, {}), Floats({1}, {0.5f})},
       Floats({2}, {1.625f, 3.375f})},
  };
}

std::vector<OpsetCase> WindowCases() {
  return {
      {"MaxPool",
       "MaxPool",
       {7, 8, 10, 11, 12},
       {1, 1, 2, 2},
       {{"kernel_shape", Ints{2, 2}}},
       {},
       Floats({1, 1, 1, 1}, {4})},
      {"MaxPoolCeil",
       "MaxPool",
       {10, 12},
       {1, 1, 3},
       {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}, {"ceil_mode", int64_t{1}}},
       {},
       Floats({1, 1, 2}, {2, 3})},
      {"AveragePoolPads",
       "AveragePool",
       {7, 10, 11},
       {1, 1, 2},
       {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 1}}},
       {},
       Floats({1, 1, 3}, {1, 1.5, 2})},
      {"AveragePoolCountsPads",
       "AveragePool",
       {7, 10, 11},
       {1, 1, 2},
       {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 1}}, {"count_include_pad", int64_t{1}}},
       {},
       Floats({1, 1, 3}, {0.5, 1.5, 1})},
      {"AveragePoolSameLower",
       "AveragePool",
       {7, 11},
       {1, 1, 2},
       {{"kernel_shape", Ints{2}}, {"auto_pad", "SAME_LOWER"}},
       {},
       Floats({1, 1, 2}, {1, 1.5})},
      {"AveragePoolSameUpper",
       "AveragePool",
       {7, 11},
       {1, 1, 2},
       {{"kernel_shape", Ints{2}}, {"auto_pad", "SAME_UPPER"}},
       {},
       Floats({1, 1, 2}, {1.5, 2})},
      {"ConvValid",
       "Conv",
       {7, 11},
       {1, 1, 3},
       {{"auto_pad", "VALID"}},
       {Floats({1, 1, 2}, {1, 10})},
       Floats({1, 1, 2}, {21, 32})},
      {"ConvSameUpperStride",
       "Conv",
       {7, 11},
       {1, 1, 3},
       {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2}}},
       {Floats({1, 1, 2}, {1, 10})},
       Floats({1, 1, 2}, {21, 3})},
  };
}

const float kLog3 = std::log(3.0f);

// Queries are x. The scores of keys 0 and log 3 differ by a factor of 3, or 9 for a query of 2.
std::vector<OpsetCase> AttentionCases() {
  const Array keys = Floats({1, 1, 2, 1}, {0, kLog3}), values = Floats({1, 1, 2, 1}, {1, 5});
  Array target(DType::kInt64, {1}), mask(DType::kBool, {1, 2});
  target.set_int(0, 1);
  mask.set_int(0, 1);
  return {
      {"Attention",
       "Attention",
       {23, 24, 25},
       {1, 1, 1, 1},
       {{"scale", 1.f}},
       {keys, values},
       Floats({1, 1, 1, 1}, {4})},
      {"AttentionCausal",
       "Attention",
       {23, 25},
       {1, 1, 2, 1},
       {{"scale", 1.f}, {"is_causal", int64_t{1}}},
       {keys, values},
       Floats({1, 1, 2, 1}, {1, 4.6f})},
      {"AttentionMasked",
       "Attention",
       {23, 25},
       {1, 1, 1, 1},
       {{"scale", 1.f}},
       {keys, values, mask},
       Floats({1, 1, 1, 1}, {1})},
      {"AttentionOfAGroup",
       "Attention",
       {23},
       {1, 2, 1, 1},
       {{"scale", 1.f}},
       {keys, values},
       Floats({1, 2, 1, 1}, {4, 4.6f})},
      {"RotaryByARightAngle",
       "RotaryEmbedding",
       {23},
       {1, 1, 1, 2},
       {},
       {Floats({1, 1, 1}, {0}), Floats({1, 1, 1}, {1})},
       Floats({1, 1, 1, 2}, {-2, 1})},
      {"Likelihood", "NegativeLogLikelihoodLoss", {13, 22}, {1, 2}, {}, {target}, Floats({}, {-2})},
      // log(e^1 + e^2) - 2.
      {"CrossEntropy", "SoftmaxCrossEntropyLoss", {13}, {1, 2}, {}, {target}, Floats({}, {0.3132617f})},
      {"LpPool",
       "LpPool",
       {18, 22},
       {1, 1, 2, 2},
       {{"kernel_shape", Ints{1, 2}}, {"p", int64_t{2}}},
       {},
       Floats({1, 1, 2, 1}, {2.236068f, 5})},
      {"Det", "Det", {11, 22}, {2, 2}, {}, {}, Floats({}, {-2})},
      {"CropAndPad", "CenterCropPad", {18}, {2, 3}, {}, {IntList({3, 2})}, Floats({3, 2}, {1, 2, 4, 5, 0, 0})},
      {"SwiGlu", "SwiGLU", {28}, {1}, {}, {Floats({1}, {3})}, Floats({1}, {2.1931758f})},  // 3 / (1 + e^-1)
  };
}

TEST(Opsets, OperatorsMeanWhatTheirVersionSays) {
  std::vector<OpsetCase> cases = OpsetCases();
  for (OpsetCase& c : ResizeCases()) cases.push_back(std::move(c));
  for (OpsetCase& c : WindowCases()) cases.push_back(std::move(c));
  for (OpsetCase& c : AttentionCases()) cases.push_back(std::move(c));
  for (const OpsetCase& c : cases) {
    for (int64_t opset : c.opsets) {
      SCOPED_TRACE(std::string(c.name) + " of opset " + std::to_string(opset));
      ModelBuilder model(opset);
      std::vector<OnnxDim> shape(c.shape.begin(), c.shape.end());
      model.Input("x", shape);
      std::vector<std::string> inputs = {"x"};
      for (const Array& constant : c.constants) {
        inputs.push_back("constant" + std::to_string(inputs.size()));
        model.Initializer(inputs.back(), constant);
      }
      auto network = model.Node(c.op, inputs, c.outputs, c.attributes).Output("y").Import();
      ASSERT_TRUE(network.ok()) << network.status();
      auto outputs = EvaluateNetwork(*network, {Counting(c.shape)});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ExpectNear((*outputs)[0], c.want, 1e-5);
    }
  }
}

// NaN is one number, the largest.
TEST(Opsets, UniqueOfConstantsIsFolded) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const bool sorted : {true, false}) {
    ModelBuilder model(13);
    model.Initializer("c", Floats({2, 3}, {3, kNan, 1, 3, -2, kNan}));
    model.Node("Unique", {"c"}, {"y", "first", "which", "counts"}, {{"sorted", int64_t{sorted}}});
    model.Output("y").Output("first", DType::kInt64).Output("which", DType::kInt64).Output("counts", DType::kInt64);
    const auto outputs = EvaluateNetwork(model.Import().value(), {});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const std::vector<std::vector<float>> want =
        sorted ? std::vector<std::vector<float>>{{-2, 1, 3, kNan}, {4, 2, 0, 1}, {2, 3, 1, 2, 0, 3}, {1, 1, 2, 2}}
               : std::vector<std::vector<float>>{{3, kNan, 1, -2}, {0, 1, 2, 4}, {0, 1, 2, 0, 3, 1}, {2, 2, 1, 1}};
    for (size_t i = 0; i < want.size(); ++i) {
      const Array& got = (*outputs)[i];
      ASSERT_EQ(got.shape, Ints{static_cast<int64_t>(want[i].size())});
      for (size_t k = 0; k < want[i].size(); ++k) {
        const double value = got.at(static_cast<int64_t>(k));
        EXPECT_TRUE(std::isnan(want[i][k]) ? std::isnan(value) : value == want[i][k]) << i << " " << k;
      }
    }
  }
}

// Nothing is dropped at inference. The mask had the type of x before opset 10.
TEST(Opsets, MasksOfDropoutAreOnes) {
  for (int64_t opset : {7, 9, 10, 11, 12, 13}) {
    SCOPED_TRACE(opset);
    ModelBuilder model(opset);
    const DType type = opset < 10 ? DType::kFloat32 : DType::kBool;
    auto network = model.Input("x", {2}).Node("Dropout", {"x"}, {"y", "m"}).Output("y").Output("m", type).Import();
    ASSERT_TRUE(network.ok()) << network.status();
    auto outputs = EvaluateNetwork(*network, {Floats({2}, {3, 4})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectNear((*outputs)[0], Floats({2}, {3, 4}), 0);
    EXPECT_EQ((*outputs)[1].dtype, type);
    ExpectNear(CastArray((*outputs)[1], DType::kFloat32), Floats({2}, {1, 1}), 0);
  }
}

TEST(Opsets, HardmaxHasNoOneWhereNanComesFirst) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t opset : {11, 13}) {
    ModelBuilder model(opset);
    auto network = model.Input("x", {2, 3}).Node("Hardmax", {"x"}, {"y"}, {{"axis", int64_t{1}}}).Output("y").Import();
    ASSERT_TRUE(network.ok()) << network.status();
    auto outputs = EvaluateNetwork(*network, {Floats({2, 3}, {kNan, 1, 2, 1, kNan, 2})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectNear((*outputs)[0], Floats({2, 3}, {0, 0, 0, 0, 0, 1}), 0);
  }
}

// As in ONNX Runtime: a slope that is no finite number changes negative elements alone.
TEST(Opsets, SlopesOfPReluCountForNegativeElementsAlone) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  for (float slope : {kNan, kInfinity, 0.5f}) {
    ModelBuilder model(16);
    model.Input("x", {5}).Initializer("slope", Floats({1}, {slope}));
    auto network = model.Node("PRelu", {"x", "slope"}, {"y"}).Output("y").Import();
    ASSERT_TRUE(network.ok()) << network.status();
    auto outputs = EvaluateNetwork(*network, {Floats({5}, {-2, 0, 2, kNan, kInfinity})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Array &got = (*outputs)[0], want = Floats({5}, {-2 * slope, 0, 2, kNan, kInfinity});
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_TRUE(std::isnan(want.at(i)) ? std::isnan(got.at(i)) : got.at(i) == want.at(i)) << slope << " " << i;
  }
}

// As in ONNX Runtime, where ONNX would have a scale of 0.
TEST(Opsets, ZerosAreQuantizedByAScaleOfOne) {
  ModelBuilder model(11);
  model.Input("x", {3}).Node("DynamicQuantizeLinear", {"x"}, {"q", "scale", "zero"});
  auto network = model.Output("q", DType::kUint8).Output("scale").Output("zero", DType::kUint8).Import();
  ASSERT_TRUE(network.ok()) << network.status();
  auto outputs = EvaluateNetwork(*network, {Floats({3}, {0, 0, 0})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[1].at(0), 1);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ((*outputs)[0].int_at(i), 0);
  EXPECT_EQ((*outputs)[2].int_at(0), 0);
}

// log(e^-0.432 + e^-1.116): the logarithm of what is left and -0.432 differ by 0.02.
TEST(Opsets, LogarithmsOfSumsOfHalvesAreTakenInFloat32) {
  Array x(DType::kFloat16, {2});
  x.set(0, -0.43212890625);
  x.set(1, -1.1162109375);
  ModelBuilder model(13);
  model.Input("x", {2}, DType::kFloat16).Node("ReduceLogSumExp", {"x"}, {"y"}, {{"keepdims", int64_t{0}}});
  auto network = model.Output("y", DType::kFloat16).Import();
  ASSERT_TRUE(network.ok()) << network.status();
  auto outputs = EvaluateNetwork(*network, {x});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_NEAR((*outputs)[0].at(0), std::log(std::exp(-0.43212890625) + std::exp(-1.1162109375)), 2e-5);
}

TEST(Opsets, ConstantsComeInAllForms) {
  struct Form {
    const char* attribute;
    OnnxValue value;
    Array want;
  };
  Array one(DType::kInt64, {}), list(DType::kInt64, {2});
  one.set_int(0, 3);
  list.set_int(0, 4);
  list.set_int(1, 5);
  for (const Form& form : std::vector<Form>{{"value", list, list},
                                            {"value_int", int64_t{3}, one},
                                            {"value_ints", Ints{4, 5}, list},
                                            {"value_float", 0.1f, Floats({}, {0.1f})},
                                            {"value_floats", std::vector<float>{1, 2}, Floats({2}, {1, 2})}}) {
    ModelBuilder model(13);
    model.Node("Constant", {}, {"y"}, {{form.attribute, form.value}}).Output("y", form.want.dtype);
    auto network = model.Import();
    ASSERT_TRUE(network.ok()) << form.attribute << " " << network.status();
    ExpectNear(EvaluateNetwork(*network, {}).value()[0], form.want, 0);
  }
}

// Weights of models that were made light; what is too large for one is left to the run.
TEST(Opsets, ConstantOfShapeIsAConstantOfUpToAGigabyte) {
  auto filled = [](int64_t rows, int64_t columns) {
    Array shape(DType::kInt64, {2}), value(DType::kFloat32, {1});
    shape.set_int(0, rows);
    shape.set_int(1, columns);
    value.set(0, 7);
    ModelBuilder model(13);
    model.Input("x", {1}).Initializer("shape", shape);
    model.Node("ConstantOfShape", {"shape"}, {"c"}, {{"value", value}}).Node("Add", {"x", "c"}, {"y"}).Output("y");
    return model.Import().value();
  };
  Network small = filled(300, 400);
  EXPECT_EQ(CountOps(small, "expand"), 0);
  EXPECT_EQ(small.tensors[small.nodes[0].inputs[1]].data->at(119999), 7);
  Network large = filled(1 << 15, 1 << 15);
  EXPECT_EQ(CountOps(large, "expand"), 1);
  EXPECT_EQ(large.tensors[large.outputs[0]].type.ToString(), "float32 32768x32768");
}

TEST(Opsets, ANewerOneIsReadAsTheNewestKnownWithAWarning) {
  const std::string bytes = ModelBuilder(29).Input("x", {2}).Node("Softmax", {"x"}, {"y"}).Output("y").Bytes();
  std::istringstream model(bytes), again(bytes);
  ModelOptions options;
  ModelFacts facts;
  const absl::StatusOr<Network> network = ImportOnnxStream(model, "model.onnx", "", options, &facts);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(CountOps(*network, "softmax"), 1);
  EXPECT_EQ(facts.warnings,
            std::vector<std::string>{"it uses opset 29 of ONNX's operators, but 7 to 28 are known: it is read as if it "
                                     "used opset 28, so compare its results"});
  options.strict = true;
  EXPECT_EQ(ImportOnnxStream(again, "model.onnx", "", options, nullptr).status().message(),
            "cannot import 'model.onnx': it uses opset 29 of ONNX's operators, but 7 to 28 are known, which --strict "
            "refuses: export it with one of these, or convert it with onnx.version_converter");
}

// Some tools write nodes in any order, as ONNX Runtime takes them.
TEST(Opsets, NodesMayStandInAnyOrder) {
  ModelBuilder model(13);
  model.Input("x", {2}).Node("Sub", {"b", "x"}, {"y"}).Node("Neg", {"a"}, {"b"}).Node("Exp", {"x"}, {"a"}).Output("y");
  const Network network = model.Import().value();
  const std::vector<Array> outputs = EvaluateNetwork(network, {Floats({2}, {0, 1})}).value();
  ExpectNear(outputs[0], Floats({2}, {-1, -std::exp(1.f) - 1}), 1e-6);
}

// Exporters write 0.1 as float32; it is ours again.
TEST(Opsets, NumbersAreTheirShortestDecimals) {
  ModelBuilder model(13);
  Network n = model.Input("x", {2}).Node("LeakyRelu", {"x"}, {"y"}, {{"alpha", 0.1f}}).Output("y").Import().value();
  EXPECT_EQ(n.nodes[0].attributes.Float("alpha", 0), 0.1);
}

}  // namespace
}  // namespace diapason
