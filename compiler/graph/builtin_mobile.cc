// Classifiers of images made of inverted residuals: an expansion by a 1x1 convolution, a depthwise convolution, a
// projection.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

enum class Activation : uint8_t { kNone, kRelu, kRelu6, kHardSwish, kSilu };

int Activated(NetworkBuilder& b, int x, Activation activation, const std::string& name) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return b.Relu(x, name);
    case Activation::kRelu6: return b.Node("clip", {x}, {{"min", 0.0}, {"max", 6.0}}, name);
    case Activation::kHardSwish: return b.Node("hard_swish", {x}, {}, name);
    case Activation::kSilu: return Silu(b, x, name);
  }
  return x;
}

// Convolution, batch norm, activation: "name.0", "name.1", "name.2" as in torchvision.
int ConvNormActivation(NetworkBuilder& b, int x, NetworkBuilder::Conv conv, Activation activation,
                       const std::string& name) {
  conv.pad = (conv.kernel - 1) / 2;
  return Activated(b, b.BatchNorm(b.Conv2d(x, conv, name + ".0"), name + ".1"), activation, name + ".2");
}

// The channels of x weighted by what a small network makes of their means (Hu et al. 2017).
struct Squeeze {
  int64_t channels = 0;  // 0: none
  Activation activation = Activation::kRelu;
  bool hard = true;  // a hard sigmoid
};

int SqueezeExcitation(NetworkBuilder& b, int x, const Squeeze& squeeze, const std::string& name) {
  int y = b.GlobalAverage(x, name + ".avgpool", true);
  y = b.Conv2d(y, {.channels = squeeze.channels, .kernel = 1, .bias = true}, name + ".fc1");
  y = Activated(b, y, squeeze.activation, name + ".activation");
  y = b.Conv2d(y, {.channels = b.ChannelsOf(x), .kernel = 1, .bias = true}, name + ".fc2");
  y = squeeze.hard ? b.Node("hard_sigmoid", {y}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}, name + ".scale")
                   : b.Node("sigmoid", {y}, {}, name + ".scale");
  return b.Node("mul", {y, x}, {}, name);
}

struct InvertedResidual {
  int64_t kernel = 3, expanded = 0, out = 0, stride = 1;
  Activation activation = Activation::kRelu6;
  Squeeze squeeze = {};
};

int Block(NetworkBuilder& b, int x, const InvertedResidual& block, const std::string& name) {
  int y = x, part = 0;
  const auto next = [&] { return absl::StrCat(name, ".", part++); };
  if (block.expanded != b.ChannelsOf(x))
    y = ConvNormActivation(b, y, {.channels = block.expanded, .kernel = 1}, block.activation, next());
  y = ConvNormActivation(
      b, y, {.channels = block.expanded, .kernel = block.kernel, .stride = block.stride, .group = block.expanded},
      block.activation, next());
  if (block.squeeze.channels > 0) y = SqueezeExcitation(b, y, block.squeeze, next());
  y = ConvNormActivation(b, y, {.channels = block.out, .kernel = 1}, Activation::kNone, next());
  const bool residual = block.stride == 1 && b.ChannelsOf(x) == block.out;
  return residual ? b.Node("add", {x, y}, {}, name + ".add") : y;
}

}  // namespace

// MobileNet version 2 (Sandler et al. 2018), as torchvision has it.
absl::StatusOr<Network> BuildMobilenetV2(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  struct Stage {
    int64_t expansion, channels, blocks, stride;
  };
  const Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int x = ConvNormActivation(b, ImageInput(b, args), {.channels = Narrowed(32, args), .stride = 2}, Activation::kRelu6,
                             "features.0");
  int number = 1;
  for (const Stage& stage : stages) {
    for (int64_t i = 0; i < stage.blocks; ++i) {
      InvertedResidual block;
      block.expanded = b.ChannelsOf(x) * stage.expansion;
      block.out = Narrowed(stage.channels, args);
      block.stride = i == 0 ? stage.stride : 1;
      x = Block(b, x, block, absl::StrCat("features.", number++));
    }
  }
  x = ConvNormActivation(b, x, {.channels = Narrowed(1280, args), .kernel = 1}, Activation::kRelu6,
                         absl::StrCat("features.", number));
  x = b.Dense(b.GlobalAverage(x, "avgpool"), args.at("classes"), "classifier");
  return b.Finish(ClassifierOutput(b, x, args));
}

// MobileNet version 3 (Howard et al. 2019), the large one, as torchvision has it.
absl::StatusOr<Network> BuildMobilenetV3(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  constexpr Activation kRe = Activation::kRelu, kHs = Activation::kHardSwish;
  struct Step {
    int64_t kernel, expanded, out;
    bool squeeze;
    Activation activation;
    int64_t stride;
  };
  const Step steps[] = {{3, 16, 16, false, kRe, 1},  {3, 64, 24, false, kRe, 2},  {3, 72, 24, false, kRe, 1},
                        {5, 72, 40, true, kRe, 2},   {5, 120, 40, true, kRe, 1},  {5, 120, 40, true, kRe, 1},
                        {3, 240, 80, false, kHs, 2}, {3, 200, 80, false, kHs, 1}, {3, 184, 80, false, kHs, 1},
                        {3, 184, 80, false, kHs, 1}, {3, 480, 112, true, kHs, 1}, {3, 672, 112, true, kHs, 1},
                        {5, 672, 160, true, kHs, 2}, {5, 960, 160, true, kHs, 1}, {5, 960, 160, true, kHs, 1}};
  int x = ConvNormActivation(b, ImageInput(b, args), {.channels = Narrowed(16, args), .stride = 2}, kHs, "features.0");
  int number = 1;
  for (const Step& step : steps) {
    InvertedResidual block{
        step.kernel, Narrowed(step.expanded, args), Narrowed(step.out, args), step.stride, step.activation, {}};
    // A quarter, in steps of 8.
    if (step.squeeze) block.squeeze.channels = Narrowed((step.expanded / 4 + 4) / 8 * 8, args);
    x = Block(b, x, block, absl::StrCat("features.", number++));
  }
  x = ConvNormActivation(b, x, {.channels = Narrowed(960, args), .kernel = 1}, kHs, absl::StrCat("features.", number));
  x = b.Dense(b.GlobalAverage(x, "avgpool"), Narrowed(1280, args), "classifier.0");
  x = b.Dense(b.Node("hard_swish", {x}, {}, "classifier.1"), args.at("classes"), "classifier.3");
  return b.Finish(ClassifierOutput(b, x, args));
}

// EfficientNet-B0 (Tan and Le 2019), as torchvision has it.
absl::StatusOr<Network> BuildEfficientnet(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  struct Stage {
    int64_t expansion, kernel, stride, channels, blocks;
  };
  const Stage stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                          {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  int x = ConvNormActivation(b, ImageInput(b, args), {.channels = Narrowed(32, args), .stride = 2}, Activation::kSilu,
                             "features.0");
  int number = 1;
  for (const Stage& stage : stages) {
    for (int64_t i = 0; i < stage.blocks; ++i) {
      const int64_t in = b.ChannelsOf(x);
      InvertedResidual block{stage.kernel,
                             in * stage.expansion,
                             Narrowed(stage.channels, args),
                             i == 0 ? stage.stride : 1,
                             Activation::kSilu,
                             {}};
      block.squeeze = {std::max<int64_t>(1, in / 4), Activation::kSilu, false};
      x = Block(b, x, block, absl::StrCat("features.", number, ".", i));
    }
    ++number;
  }
  x = ConvNormActivation(b, x, {.channels = Narrowed(1280, args), .kernel = 1}, Activation::kSilu,
                         absl::StrCat("features.", number));
  x = b.Dense(b.GlobalAverage(x, "avgpool"), args.at("classes"), "classifier");
  return b.Finish(ClassifierOutput(b, x, args));
}

}  // namespace diapason
