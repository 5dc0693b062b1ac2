#include "compiler/graph/builtin_networks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/network_builder.h"

namespace diapason {
namespace {

// ResNet (He et al. 2015) as torchvision has it: version 1.5, with the stride of a bottleneck in its 3x3 convolution.
class Resnet {
 public:
  Resnet(NetworkBuilder& b, const BuiltinArgs& args, std::vector<int> blocks, bool bottleneck)
      : b_(b), args_(args), blocks_(std::move(blocks)), bottleneck_(bottleneck) {
    int total = 0;
    for (int n : blocks_) total += n;
    gain_ = 1.0f / std::sqrt(static_cast<float>(total));
  }

  int Body(int x) {
    x = b_.Relu(ConvNorm(x, {.channels = Narrowed(64, args_), .kernel = 7, .stride = 2, .pad = 3}, "conv1", "bn1"),
                "relu1");
    x = b_.MaxPool(x, {3, 2, 1}, "maxpool");
    for (size_t stage = 0; stage < blocks_.size(); ++stage) {
      for (int block = 0; block < blocks_[stage]; ++block) {
        int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        x = Block(x, Narrowed(int64_t{64} << stage, args_), stride, absl::StrCat("layer", stage + 1, ".", block));
      }
    }
    return x;
  }

 private:
  int ConvNorm(int x, const NetworkBuilder::Conv& conv, const std::string& name, const std::string& norm,
               float gain = 1) {
    return b_.BatchNorm(b_.Conv2d(x, conv, name), norm, gain);
  }

  // The last norm of a block is small, so that sums over 50 blocks stay near 1.
  int Block(int x, int64_t width, int64_t stride, const std::string& name) {
    int64_t out = bottleneck_ ? 4 * width : width;
    int y;
    if (bottleneck_) {
      y = b_.Relu(ConvNorm(x, {.channels = width, .kernel = 1}, name + ".conv1", name + ".bn1"), name + ".relu1");
      y = b_.Relu(ConvNorm(y, {.channels = width, .stride = stride, .pad = 1}, name + ".conv2", name + ".bn2"),
                  name + ".relu2");
      y = ConvNorm(y, {.channels = out, .kernel = 1}, name + ".conv3", name + ".bn3", gain_);
    } else {
      y = b_.Relu(ConvNorm(x, {.channels = width, .stride = stride, .pad = 1}, name + ".conv1", name + ".bn1"),
                  name + ".relu1");
      y = ConvNorm(y, {.channels = out, .pad = 1}, name + ".conv2", name + ".bn2", gain_);
    }
    if (stride != 1 || b_.ChannelsOf(x) != out) {
      x = ConvNorm(x, {.channels = out, .kernel = 1, .stride = stride}, name + ".downsample.0", name + ".downsample.1");
    }
    return b_.Relu(b_.Node("add", {y, x}, {}, name + ".add"), name + ".relu");
  }

  NetworkBuilder& b_;
  const BuiltinArgs& args_;
  std::vector<int> blocks_;
  bool bottleneck_;
  float gain_;
};

// One convolution, with what the options put behind it.
// Sums of products of bytes as uint8, which is a relu: those of some hundred terms are spread over it.
int Requantized(NetworkBuilder& b, int sum) {
  int y = b.Node("cast", {sum}, {{"to", std::string("float32")}}, "sum.cast");
  y = b.Node("mul", {y, b.Constant("scale", {1}, 0.0005f, 0.0005f)}, {}, "scaled");
  y = b.Node("clip", {b.Node("round", {y}, {}, "rounded")}, {{"min", 0.0}, {"max", 255.0}}, "clipped");
  return b.Node("cast", {y}, {{"to", std::string("uint8")}}, "quantized");
}

absl::StatusOr<Network> SingleConv(NetworkBuilder& b, int x, const NetworkBuilder::Conv& conv,
                                   const BuiltinArgs& args) {
  int y = b.Conv2d(x, conv, "conv");
  if (conv.bytes) return b.Finish(Requantized(b, y));
  if (args.at("scale")) {
    const std::vector<int64_t> shape =
        b.nhwc() ? std::vector<int64_t>{conv.channels} : std::vector<int64_t>{conv.channels, 1, 1};
    y = b.Node("mul", {y, b.Constant("scale", shape, 0.8f, 1.2f)}, {}, "scaled");
    y = b.Node("add", {y, b.Constant("shift", shape, -0.1f, 0.1f)}, {}, "shifted");
  }
  if (args.at("relu")) y = b.Relu(y, "relu");
  return b.Finish(y);
}

int64_t PadOf(const BuiltinArgs& args) {
  int64_t pad = args.at("pad");
  return pad < 0 ? args.at("dilation") * (args.at("kernel") - 1) / 2 : pad;
}

}  // namespace

absl::StatusOr<Network> BuildResnet(const std::string& name, const BuiltinArgs& args) {
  static const auto& depths = *new std::map<std::string, std::vector<int>>{{"resnet-18", {2, 2, 2, 2}},
                                                                           {"resnet-34", {3, 4, 6, 3}},
                                                                           {"resnet-50", {3, 4, 6, 3}},
                                                                           {"resnet-101", {3, 4, 23, 3}},
                                                                           {"resnet-152", {3, 8, 36, 3}}};
  NetworkBuilder b = BeginNetwork(name, args);
  bool bottleneck = name != "resnet-18" && name != "resnet-34";
  int x = Resnet(b, args, depths.at(name), bottleneck).Body(ImageInput(b, args));
  x = b.Dense(b.GlobalAverage(x, "avgpool"), args.at("classes"), "fc");
  return b.Finish(ClassifierOutput(b, x, args));
}

// MobileNet version 1 (Howard et al. 2017), multiplier 1.0.
absl::StatusOr<Network> BuildMobilenet(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  auto layer = [&](int x, const NetworkBuilder::Conv& conv, const std::string& layer_name) {
    x = b.BatchNorm(b.Conv2d(x, conv, layer_name), layer_name + ".bn");
    return b.Node("clip", {x}, {{"min", 0.0}, {"max", 6.0}}, layer_name + ".relu6");
  };
  int x = layer(ImageInput(b, args), {.channels = Narrowed(32, args), .stride = 2, .pad = 1}, "conv1");
  struct Step {
    int64_t channels, stride;
  };
  const Step steps[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                        {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  int number = 1;
  for (const Step& step : steps) {
    int64_t in = b.ChannelsOf(x);
    std::string block = absl::StrCat("block", number++);
    x = layer(x, {.channels = in, .stride = step.stride, .pad = 1, .group = in}, block + ".depthwise");
    x = layer(x, {.channels = Narrowed(step.channels, args), .kernel = 1}, block + ".pointwise");
  }
  x = b.Dense(b.GlobalAverage(x, "avgpool"), args.at("classes"), "fc");
  return b.Finish(ClassifierOutput(b, x, args));
}

// SqueezeNet 1.1 (Iandola et al. 2016), as torchvision has it.
absl::StatusOr<Network> BuildSqueezenet(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  auto conv = [&](int x, NetworkBuilder::Conv c, const std::string& layer) {
    c.bias = true;
    return b.Relu(b.Conv2d(x, c, layer), layer + ".relu");
  };
  auto fire = [&](int x, int64_t squeeze, int64_t expand, const std::string& layer) {
    x = conv(x, {.channels = squeeze, .kernel = 1}, layer + ".squeeze");
    int one = conv(x, {.channels = expand, .kernel = 1}, layer + ".expand1x1");
    int three = conv(x, {.channels = expand, .pad = 1}, layer + ".expand3x3");
    return b.Node("concat", {one, three}, {{"axis", int64_t{b.nhwc() ? 3 : 1}}}, layer + ".concat");
  };
  int x = conv(ImageInput(b, args), {.channels = Narrowed(64, args), .stride = 2}, "conv1");
  const int64_t squeeze[] = {16, 16, 32, 32, 48, 48, 64, 64};
  for (int i = 0; i < 8; ++i) {
    if (i == 0 || i == 2 || i == 4)
      x = b.MaxPool(x, {.kernel = 3, .stride = 2, .ceil_mode = true}, absl::StrCat("pool", i / 2 + 1));
    const int64_t width = Narrowed(squeeze[i], args);
    x = fire(x, width, 4 * width, absl::StrCat("fire", i + 2));
  }
  x = conv(x, {.channels = args.at("classes"), .kernel = 1}, "conv10");
  return b.Finish(ClassifierOutput(b, b.GlobalAverage(x, "avgpool"), args));
}

absl::StatusOr<Network> BuildConv2d(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  const bool bytes = args.at("int8") != 0;
  int x =
      b.Input("data", b.ImageShape(args.at("ci"), args.at("h"), args.at("w")), bytes ? DType::kUint8 : DType::kFloat32);
  return SingleConv(b, x,
                    {.channels = args.at("co"),
                     .kernel = args.at("kernel"),
                     .stride = args.at("stride"),
                     .pad = PadOf(args),
                     .dilation = args.at("dilation"),
                     .group = args.at("group"),
                     .bias = args.at("bias") != 0,
                     .bytes = bytes},
                    args);
}

absl::StatusOr<Network> BuildDepthwise(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  int x = b.Input("data", b.ImageShape(args.at("channels"), args.at("size"), args.at("size")));
  int64_t channels = b.ChannelsOf(x);
  return SingleConv(b, x,
                    {.channels = channels * args.at("multiplier"),
                     .kernel = args.at("kernel"),
                     .stride = args.at("stride"),
                     .pad = PadOf(args),
                     .dilation = args.at("dilation"),
                     .group = channels,
                     .bias = args.at("bias") != 0},
                    args);
}

// With a batch above 1 a batched product, one pair of matrices each.
absl::StatusOr<Network> BuildGemm(const std::string& name, const BuiltinArgs& args) {
  int64_t m = args.at("m"), n = args.at("n"), k = args.at("k"), batch = args.options->batch;
  std::vector<int64_t> left = {m, k}, right = {k, n};
  ModelOptions options = *args.options;
  if (batch <= 1) {
    options.batch = 0;
  } else {
    left.insert(left.begin(), batch);
    right.insert(right.begin(), batch);
  }
  NetworkBuilder b(name, options, static_cast<uint64_t>(args.at("seed")));
  float bound = std::sqrt(3.0f / static_cast<float>(k));
  const bool bytes = args.at("int8") != 0;
  const DType dtype = bytes ? DType::kInt8 : DType::kFloat32;
  int a = b.Input("a", left, dtype);
  int w = !args.at("constant") ? b.Input("b", right, dtype)
          : bytes              ? b.Bytes("b", right)
                               : b.Constant("b", right, -bound, bound);
  int y = b.Node(batch > 1 ? "matmul" : "gemm", {a, w}, {}, "product");
  if (bytes) return b.Finish(y);
  if (args.at("bias")) y = b.Node("add", {y, b.Constant("bias", {n}, -0.1f, 0.1f)}, {}, "bias_add");
  if (args.at("relu")) y = b.Relu(y, "relu");
  return b.Finish(y);
}

}  // namespace diapason
