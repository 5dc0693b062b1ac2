// Further classifiers of images, named as in torchvision.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

// Inception version 3: convolutions with a batch norm and a ReLU each, side by side.
class Inception {
 public:
  Inception(NetworkBuilder& b, const BuiltinArgs& args) : b_(b), args_(args) {}

  int Body(int x) {
    x = Layer(x, {.channels = 32, .stride = 2}, "Conv2d_1a_3x3");
    x = Layer(x, {.channels = 32}, "Conv2d_2a_3x3");
    x = b_.MaxPool(Square(x, 64, 3, "Conv2d_2b_3x3"), {3, 2}, "maxpool1");
    x = Layer(Square(x, 80, 1, "Conv2d_3b_1x1"), {.channels = 192}, "Conv2d_4a_3x3");
    x = b_.MaxPool(x, {3, 2}, "maxpool2");
    x = BlockA(x, 32, "Mixed_5b");
    x = BlockA(x, 64, "Mixed_5c");
    x = BlockA(x, 64, "Mixed_5d");
    x = BlockB(x, "Mixed_6a");
    x = BlockC(x, 128, "Mixed_6b");
    x = BlockC(x, 160, "Mixed_6c");
    x = BlockC(x, 160, "Mixed_6d");
    x = BlockC(x, 192, "Mixed_6e");
    x = BlockD(x, "Mixed_7a");
    x = BlockE(x, "Mixed_7b");
    return BlockE(x, "Mixed_7c");
  }

 private:
  int Layer(int x, NetworkBuilder::Conv conv, const std::string& name) {
    conv.channels = Narrowed(conv.channels, args_);
    return b_.Relu(b_.BatchNorm(b_.Conv2d(x, conv, name + ".conv"), name + ".bn"), name + ".relu");
  }
  // Those that keep the size of the image.
  int Square(int x, int64_t channels, int64_t kernel, const std::string& name) {
    return Layer(x, {.channels = channels, .kernel = kernel, .pad = kernel / 2}, name);
  }
  int Wide(int x, int64_t channels, int64_t kernel, const std::string& name) {
    return Layer(x, {.channels = channels, .kernel = 1, .kernel_w = kernel, .pad_w = kernel / 2}, name);
  }
  int High(int x, int64_t channels, int64_t kernel, const std::string& name) {
    return Layer(x, {.channels = channels, .kernel = kernel, .pad = kernel / 2, .kernel_w = 1, .pad_w = 0}, name);
  }
  int Join(std::vector<int> parts, const std::string& name) {
    return Concat(b_, std::move(parts), b_.ChannelAxis(), name);
  }
  int Pooled(int x, int64_t channels, const std::string& name) {
    return Square(b_.AveragePool(x, 3, 1, 1, name + ".avgpool"), channels, 1, name + ".branch_pool");
  }

  int BlockA(int x, int64_t pool, const std::string& name) {
    const int one = Square(x, 64, 1, name + ".branch1x1");
    const int five = Square(Square(x, 48, 1, name + ".branch5x5_1"), 64, 5, name + ".branch5x5_2");
    int three = Square(Square(x, 64, 1, name + ".branch3x3dbl_1"), 96, 3, name + ".branch3x3dbl_2");
    three = Square(three, 96, 3, name + ".branch3x3dbl_3");
    return Join({one, five, three, Pooled(x, pool, name)}, name);
  }
  int BlockB(int x, const std::string& name) {
    const int three = Layer(x, {.channels = 384, .stride = 2}, name + ".branch3x3");
    int twice = Square(Square(x, 64, 1, name + ".branch3x3dbl_1"), 96, 3, name + ".branch3x3dbl_2");
    twice = Layer(twice, {.channels = 96, .stride = 2}, name + ".branch3x3dbl_3");
    return Join({three, twice, b_.MaxPool(x, {3, 2}, name + ".maxpool")}, name);
  }
  int BlockC(int x, int64_t inner, const std::string& name) {
    const int one = Square(x, 192, 1, name + ".branch1x1");
    int seven = Wide(Square(x, inner, 1, name + ".branch7x7_1"), inner, 7, name + ".branch7x7_2");
    seven = High(seven, 192, 7, name + ".branch7x7_3");
    int twice = High(Square(x, inner, 1, name + ".branch7x7dbl_1"), inner, 7, name + ".branch7x7dbl_2");
    twice = High(Wide(twice, inner, 7, name + ".branch7x7dbl_3"), inner, 7, name + ".branch7x7dbl_4");
    twice = Wide(twice, 192, 7, name + ".branch7x7dbl_5");
    return Join({one, seven, twice, Pooled(x, 192, name)}, name);
  }
  int BlockD(int x, const std::string& name) {
    const int three =
        Layer(Square(x, 192, 1, name + ".branch3x3_1"), {.channels = 320, .stride = 2}, name + ".branch3x3_2");
    int seven = Wide(Square(x, 192, 1, name + ".branch7x7x3_1"), 192, 7, name + ".branch7x7x3_2");
    seven =
        Layer(High(seven, 192, 7, name + ".branch7x7x3_3"), {.channels = 192, .stride = 2}, name + ".branch7x7x3_4");
    return Join({three, seven, b_.MaxPool(x, {3, 2}, name + ".maxpool")}, name);
  }
  int BlockE(int x, const std::string& name) {
    const int one = Square(x, 320, 1, name + ".branch1x1");
    const auto both = [&](int y, const std::string& branch) {
      const int wide = Wide(y, 384, 3, branch + "a");
      return Join({wide, High(y, 384, 3, branch + "b")}, branch);
    };
    const int three = both(Square(x, 384, 1, name + ".branch3x3_1"), name + ".branch3x3_2");
    const int twice = both(Square(Square(x, 448, 1, name + ".branch3x3dbl_1"), 384, 3, name + ".branch3x3dbl_2"),
                           name + ".branch3x3dbl_3");
    return Join({one, three, twice, Pooled(x, 192, name)}, name);
  }

  NetworkBuilder& b_;
  const BuiltinArgs& args_;
};

// A layer norm over the channels of an image.
int ChannelNorm(NetworkBuilder& b, int x, const std::string& name) {
  return FromChannelsLast(b, LayerNorm(b, ChannelsLast(b, x, name + ".in"), name, 1e-6), name + ".out");
}

int ConvnextBlock(NetworkBuilder& b, int x, const std::string& name) {
  const int64_t channels = b.ChannelsOf(x);
  int y =
      b.Conv2d(x, {.channels = channels, .kernel = 7, .pad = 3, .group = channels, .bias = true}, name + ".block.0");
  y = LayerNorm(b, ChannelsLast(b, y, name + ".block.1"), name + ".block.2", 1e-6);
  y = b.Node("gelu", {Linear(b, y, 4 * channels, name + ".block.3")}, {}, name + ".block.4");
  y = Linear(b, y, channels, name + ".block.5");
  y = b.Node("mul", {y, b.Constant(name + ".layer_scale", {channels}, 0.1f, 0.3f)}, {}, name + ".scaled");
  return b.Node("add", {FromChannelsLast(b, y, name + ".block.6"), x}, {}, name + ".add");
}

}  // namespace

// VGG-16 (Simonyan and Zisserman 2014). The first dense layer reads what remains of the image, 7x7 of 224x224.
absl::StatusOr<Network> BuildVgg(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  int x = ImageInput(b, args), number = 0;
  for (const std::vector<int64_t>& stage :
       std::vector<std::vector<int64_t>>{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}}) {
    for (int64_t channels : stage) {
      x = b.Conv2d(x, {.channels = Narrowed(channels, args), .pad = 1, .bias = true},
                   absl::StrCat("features.", number));
      x = b.Relu(x, absl::StrCat("features.", number + 1));
      number += 2;
    }
    x = b.MaxPool(x, {2, 2}, absl::StrCat("features.", number++));
  }
  x = b.Node("flatten", {x}, {}, "flatten");
  x = b.Relu(b.Dense(x, Narrowed(4096, args), "classifier.0"), "classifier.1");
  x = b.Relu(b.Dense(x, Narrowed(4096, args), "classifier.3"), "classifier.4");
  return b.Finish(ClassifierOutput(b, b.Dense(x, args.at("classes"), "classifier.6"), args));
}

// DenseNet-121 (Huang et al. 2016).
absl::StatusOr<Network> BuildDensenet(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  const int64_t growth = Narrowed(32, args);
  const auto activated = [&](int x, const std::string& norm) { return b.Relu(b.BatchNorm(x, norm), norm + ".relu"); };
  int x = b.Conv2d(ImageInput(b, args), {.channels = 2 * growth, .kernel = 7, .stride = 2, .pad = 3}, "features.conv0");
  x = b.MaxPool(activated(x, "features.norm0"), {3, 2, 1}, "features.pool0");
  const int layers[] = {6, 12, 24, 16};
  for (int block = 1; block <= 4; ++block) {
    std::vector<int> parts = {x};
    for (int i = 1; i <= layers[block - 1]; ++i) {
      const std::string layer = absl::StrCat("features.denseblock", block, ".denselayer", i);
      if (i > 1) x = Concat(b, parts, b.ChannelAxis(), layer + ".concat");
      x = b.Conv2d(activated(x, layer + ".norm1"), {.channels = 4 * growth, .kernel = 1}, layer + ".conv1");
      parts.push_back(b.Conv2d(activated(x, layer + ".norm2"), {.channels = growth, .pad = 1}, layer + ".conv2"));
    }
    x = Concat(b, parts, b.ChannelAxis(), absl::StrCat("features.denseblock", block));
    if (block == 4) break;
    const std::string transition = absl::StrCat("features.transition", block);
    const int64_t half = b.ChannelsOf(x) / 2;
    x = b.Conv2d(activated(x, transition + ".norm"), {.channels = half, .kernel = 1}, transition + ".conv");
    x = b.AveragePool(x, 2, 2, 0, transition + ".pool");
  }
  x = b.Dense(b.GlobalAverage(activated(x, "features.norm5"), "avgpool"), args.at("classes"), "classifier");
  return b.Finish(ClassifierOutput(b, x, args));
}

// Inception version 3 (Szegedy et al. 2015), without the auxiliary classifier.
absl::StatusOr<Network> BuildInception(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  const int x = b.GlobalAverage(Inception(b, args).Body(ImageInput(b, args)), "avgpool");
  return b.Finish(ClassifierOutput(b, b.Dense(x, args.at("classes"), "fc"), args));
}

// ConvNeXt (Liu et al. 2022), the tiny size.
absl::StatusOr<Network> BuildConvnext(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  int x = b.Conv2d(ImageInput(b, args), {.channels = Narrowed(96, args), .kernel = 4, .stride = 4, .bias = true},
                   "features.0.0");
  x = ChannelNorm(b, x, "features.0.1");
  const int blocks[] = {3, 3, 9, 3};
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0) {
      const std::string downsample = absl::StrCat("features.", 2 * stage);
      x = ChannelNorm(b, x, downsample + ".0");
      x = b.Conv2d(x, {.channels = Narrowed(int64_t{96} << stage, args), .kernel = 2, .stride = 2, .bias = true},
                   downsample + ".1");
    }
    for (int i = 0; i < blocks[stage]; ++i) x = ConvnextBlock(b, x, absl::StrCat("features.", 2 * stage + 1, ".", i));
  }
  x = LayerNorm(b, b.GlobalAverage(x, "avgpool"), "classifier.0", 1e-6);
  return b.Finish(ClassifierOutput(b, b.Dense(x, args.at("classes"), "classifier.2"), args));
}

}  // namespace diapason
