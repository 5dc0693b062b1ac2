// Networks that give a map for an image: segmentation and detection.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

// Images are halved and doubled again, which must give the same size.
absl::Status CheckImageMultiple(const std::string& network, const BuiltinArgs& args, int64_t multiple) {
  if (args.at("image") % multiple == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("option 'image' of network '", network, "' cannot be ",
                                                 args.at("image"), ": give a multiple of ", multiple));
}

// YOLO version 5, small: the layers' names are those of its published weights.
class Yolo {
 public:
  Yolo(NetworkBuilder& b, const BuiltinArgs& args) : b_(b), args_(args) {}

  absl::StatusOr<Network> Build(int x) {
    x = Layer(x, {.channels = Wide(32), .kernel = 6, .stride = 2, .pad = 2}, "model.0");
    x = Csp(Halved(x, Wide(64), "model.1"), Wide(64), 1, true, "model.2");
    const int p3 = Csp(Halved(x, Wide(128), "model.3"), Wide(128), 2, true, "model.4");
    const int p4 = Csp(Halved(p3, Wide(256), "model.5"), Wide(256), 3, true, "model.6");
    x = Csp(Halved(p4, Wide(512), "model.7"), Wide(512), 1, true, "model.8");
    const int top = Pointwise(Pyramid(x, Wide(512), "model.9"), Wide(256), "model.10");
    x = Csp(Join({Upsample(b_, top, "model.11"), p4}, "model.12"), Wide(256), 1, false, "model.13");
    const int middle = Pointwise(x, Wide(128), "model.14");
    const int small = Csp(Join({Upsample(b_, middle, "model.15"), p3}, "model.16"), Wide(128), 1, false, "model.17");
    x = Join({Halved(small, Wide(128), "model.18"), middle}, "model.19");
    const int medium = Csp(x, Wide(256), 1, false, "model.20");
    x = Join({Halved(medium, Wide(256), "model.21"), top}, "model.22");
    const int large = Csp(x, Wide(512), 1, false, "model.23");
    // Three boxes a place: their position and size, whether there is one, and of which class.
    const int64_t outputs = 3 * (5 + args_.at("classes"));
    std::vector<std::pair<std::string, int>> maps;
    for (int x : {small, medium, large}) {
      const std::string name = absl::StrCat("model.24.m.", maps.size());
      const int map = b_.Conv2d(x, {.channels = outputs, .kernel = 1, .bias = true}, name);
      maps.emplace_back(absl::StrCat("boxes", 8 << maps.size()), map);
    }
    return b_.Finish(maps);
  }

 private:
  int64_t Wide(int64_t channels) const { return Narrowed(channels, args_); }
  int Layer(int x, const NetworkBuilder::Conv& conv, const std::string& name) {
    return Silu(b_, b_.BatchNorm(b_.Conv2d(x, conv, name + ".conv"), name + ".bn"), name + ".act");
  }
  int Pointwise(int x, int64_t channels, const std::string& name) {
    return Layer(x, {.channels = channels, .kernel = 1}, name);
  }
  int Halved(int x, int64_t channels, const std::string& name) {
    return Layer(x, {.channels = channels, .stride = 2, .pad = 1}, name);
  }
  int Join(std::vector<int> parts, const std::string& name) {
    return Concat(b_, std::move(parts), b_.ChannelAxis(), name);
  }

  // Bottlenecks over one half of the channels, the other half beside them (Wang et al. 2019).
  int Csp(int x, int64_t channels, int bottlenecks, bool shortcut, const std::string& name) {
    const int64_t half = (channels + 1) / 2;
    int y = Pointwise(x, half, name + ".cv1");
    for (int i = 0; i < bottlenecks; ++i) {
      const std::string inner = absl::StrCat(name, ".m.", i);
      const int z = Layer(Pointwise(y, half, inner + ".cv1"), {.channels = half, .pad = 1}, inner + ".cv2");
      y = shortcut ? b_.Node("add", {y, z}, {}, inner + ".add") : z;
    }
    return Pointwise(Join({y, Pointwise(x, half, name + ".cv2")}, name + ".concat"), channels, name + ".cv3");
  }

  // Maxima of windows of 5, 9 and 13 pixels (He et al. 2014).
  int Pyramid(int x, int64_t channels, const std::string& name) {
    x = Pointwise(x, (channels + 1) / 2, name + ".cv1");
    std::vector<int> parts = {x};
    for (int i = 0; i < 3; ++i) parts.push_back(b_.MaxPool(parts.back(), {5, 1, 2}, absl::StrCat(name, ".pool", i)));
    return Pointwise(Join(parts, name + ".concat"), channels, name + ".cv2");
  }

  NetworkBuilder& b_;
  const BuiltinArgs& args_;
};

}  // namespace

// A U-Net (Ronneberger et al. 2015) of three levels with a quarter of the published channels, padding that keeps the
// image's size, and batch norms: a score of each class for each pixel.
absl::StatusOr<Network> BuildUnet(const std::string& name, const BuiltinArgs& args) {
  constexpr int kLevels = 3;
  RETURN_IF_ERROR(CheckImageMultiple(name, args, 1 << kLevels));
  NetworkBuilder b = BeginNetwork(name, args);
  const auto layer = [&](int x, int64_t channels, const std::string& conv) {
    return b.Relu(b.BatchNorm(b.Conv2d(x, {.channels = channels, .pad = 1}, conv + ".conv"), conv + ".bn"),
                  conv + ".relu");
  };
  const auto twice = [&](int x, int64_t channels, const std::string& block) {
    return layer(layer(x, channels, block + ".0"), channels, block + ".1");
  };
  const auto width = [&](int level) { return Narrowed(int64_t{16} << level, args); };
  int x = ImageInput(b, args);
  std::vector<int> skipped;
  for (int level = 0; level < kLevels; ++level) {
    x = twice(x, width(level), absl::StrCat("down", level));
    skipped.push_back(x);
    x = b.MaxPool(x, {2, 2}, absl::StrCat("pool", level));
  }
  x = twice(x, width(kLevels), "bottom");
  for (int level = kLevels - 1; level >= 0; --level) {
    const std::string up = absl::StrCat("up", level);
    x = layer(Upsample(b, x, up + ".upsample"), width(level), up + ".up");
    x = twice(Concat(b, {skipped[level], x}, b.ChannelAxis(), up + ".concat"), width(level), up);
  }
  return b.Finish(b.Conv2d(x, {.channels = args.at("classes"), .kernel = 1, .bias = true}, "out"));
}

// YOLO version 5, small (Jocher 2020), up to the maps of boxes at strides 8, 16 and 32.
absl::StatusOr<Network> BuildYolo(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckImageMultiple(name, args, 32));
  NetworkBuilder b = BeginNetwork(name, args);
  return Yolo(b, args).Build(ImageInput(b, args));
}

}  // namespace diapason
