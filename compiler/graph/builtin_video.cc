// Classifiers of videos: batch x channels x frames x height x width, whatever the layout of images.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

using Ints = std::vector<int64_t>;

struct VolumeConv {
  int64_t channels = 0;
  Ints kernel = {3, 3, 3}, strides = {1, 1, 1}, pads = {1, 1, 1};
};

// A convolution "name.0" and a batch norm "name.1".
int ConvNorm3d(NetworkBuilder& b, int x, const VolumeConv& c, const std::string& name, float gain = 1) {
  const int64_t in = b.Extent(x, 1);
  const float bound = std::sqrt(6.0f / static_cast<float>(in * c.kernel[0] * c.kernel[1] * c.kernel[2]));
  const int weight =
      b.Constant(name + ".0.weight", {c.channels, in, c.kernel[0], c.kernel[1], c.kernel[2]}, -bound, bound);
  const Ints pads = {c.pads[0], c.pads[1], c.pads[2], c.pads[0], c.pads[1], c.pads[2]};
  x = b.Node("conv3d", {x, weight}, {{"strides", c.strides}, {"pads", pads}}, name + ".0");
  const int scale = b.Constant(name + ".1.weight", {c.channels}, 0.8f * gain, 1.2f * gain);
  const int bias = b.Constant(name + ".1.bias", {c.channels}, -0.1f, 0.1f);
  const int mean = b.Constant(name + ".1.running_mean", {c.channels}, -0.1f, 0.1f);
  const int variance = b.Constant(name + ".1.running_var", {c.channels}, 0.8f, 1.2f);
  return b.Node("batch_norm", {x, scale, bias, mean, variance}, {{"axis", int64_t{1}}}, name + ".1");
}

int ResidualBlock3d(NetworkBuilder& b, int x, int64_t channels, int64_t stride, const std::string& name) {
  const Ints strides(3, stride);
  int y = b.Relu(ConvNorm3d(b, x, {.channels = channels, .strides = strides}, name + ".conv1"), name + ".relu1");
  // Small, so that sums over the blocks stay near 1.
  y = ConvNorm3d(b, y, {.channels = channels}, name + ".conv2", 0.35f);
  if (stride != 1 || b.Extent(x, 1) != channels) {
    x = ConvNorm3d(b, x, {.channels = channels, .kernel = {1, 1, 1}, .strides = strides, .pads = {0, 0, 0}},
                   name + ".downsample");
  }
  return b.Relu(b.Node("add", {y, x}, {}, name + ".add"), name + ".relu");
}

}  // namespace

// R3D-18 (Tran et al. 2017), as torchvision has it.
absl::StatusOr<Network> BuildResnet3d(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  int x = b.Input("data", {1, 3, args.at("frames"), args.at("image"), args.at("image")});
  x = ConvNorm3d(b, x, {.channels = Narrowed(64, args), .kernel = {3, 7, 7}, .strides = {1, 2, 2}, .pads = {1, 3, 3}},
                 "stem");
  x = b.Relu(x, "stem.2");
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < 2; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = ResidualBlock3d(b, x, Narrowed(int64_t{64} << stage, args), stride,
                          absl::StrCat("layer", stage + 1, ".", block));
    }
  }
  x = b.Node("reduce_mean", {x}, {{"axes", Ints{2, 3, 4}}, {"keepdims", int64_t{0}}}, "avgpool");
  return b.Finish(ClassifierOutput(b, b.Dense(x, args.at("classes"), "fc"), args));
}

}  // namespace diapason
