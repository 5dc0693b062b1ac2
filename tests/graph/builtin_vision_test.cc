// Built-in networks for images and videos against plain loops.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin.h"
#include "reference_layers.h"

namespace diapason {
namespace {

using reference::BatchNorm;
using reference::Conv;
using reference::Joined;
using reference::Map;
using reference::Means;
using reference::Permuted;
using reference::Plus;
using reference::Pool;
using reference::Values;
using reference::Weights;

using Function = double (*)(double);
using Forward = std::vector<Values> (*)(const Weights& w, const Values& image);

// The network, small, in both layouts, against a function of its weights and its input with the channels first.
void ExpectImageNetwork(const std::string& name, const std::map<std::string, std::string>& extra, Forward forward,
                        bool maps = false) {
  for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    SCOPED_TRACE(NameOf(layout));
    ModelOptions options;
    options.batch = 2;
    options.layout = layout;
    options.extra = extra;
    const auto network = BuiltinNetwork(name, options);
    ASSERT_TRUE(network.ok()) << network.status();
    const std::vector<Array> inputs = RandomInputs(*network, 3);
    std::vector<Values> want =
        forward(Weights(*network, layout), reference::ChannelsFirst(reference::ValuesOf(inputs[0]), layout));
    for (Values& x : want) {
      if (maps && layout == Layout::kNHWC) x = Permuted(x, {0, 2, 3, 1});
    }
    reference::ExpectNetworkGives(*network, options, inputs, want);
  }
}

// x with its planes multiplied by the numbers of `factors`, batch x channels.
Values Weighted(Values x, const Values& factors) {
  const size_t pixels = x.Count(2, 4);
  for (size_t i = 0; i < x.v.size(); ++i) x.v[i] *= factors.v[i / pixels];
  return x;
}

Values AsImage(Values x) {
  x.shape = {x.shape[0], x.shape[1], 1, 1};
  return x;
}

// Convolution, batch norm, activation of torchvision's "name.0" and "name.1".
Values Layer(const Weights& w, const Values& x, const std::string& name, int64_t stride, Function activation) {
  const Values y = BatchNorm(w, Conv(w, x, name + ".0", stride), name + ".1");
  return activation ? Map(y, activation) : y;
}

struct Mobile {
  Function activation, squeeze = nullptr, scale = nullptr;
};

// The parts that a block has are those whose weights are there.
Values InvertedResidual(const Weights& w, const Values& x, const std::string& name, int64_t stride,
                        const Mobile& kind) {
  Values y = x;
  for (int part = 0; part < 4; ++part) {
    const std::string layer = absl::StrCat(name, ".", part);
    if (w.has(layer + ".fc1.weight")) {
      const Values inner = Map(Conv(w, AsImage(Means(y)), layer + ".fc1"), kind.squeeze);
      y = Weighted(y, Map(Conv(w, inner, layer + ".fc2"), kind.scale));
    } else if (w.has(layer + ".0.weight")) {
      const bool depthwise = w.Kernel(layer + ".0.weight").shape[2] > 1,
                 last = !w.has(absl::StrCat(name, ".", part + 1, ".0.weight")) &&
                        !w.has(absl::StrCat(name, ".", part + 1, ".fc1.weight"));
      y = Layer(w, y, layer, depthwise ? stride : 1, last ? nullptr : kind.activation);
    }
  }
  return y.shape == x.shape ? Plus(y, x) : y;
}

std::vector<Values> MobilenetV2(const Weights& w, const Values& image) {
  Values x = Layer(w, image, "features.0", 2, reference::Relu6);
  const int strides[] = {1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1};
  for (int i = 0; i < 17; ++i)
    x = InvertedResidual(w, x, absl::StrCat("features.", i + 1), strides[i], {reference::Relu6});
  x = Layer(w, x, "features.18", 1, reference::Relu6);
  return {reference::Linear(w, Means(x), "classifier")};
}

TEST(BuiltinVision, MobilenetV2) {
  ExpectImageNetwork("mobilenet_v2", {{"image", "32"}, {"width", "20"}, {"classes", "7"}}, MobilenetV2);
}

std::vector<Values> MobilenetV3(const Weights& w, const Values& image) {
  Values x = Layer(w, image, "features.0", 2, reference::HardSwish);
  const int strides[] = {1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1};
  for (int i = 0; i < 15; ++i) {
    const Mobile kind{i < 6 ? reference::Relu : reference::HardSwish, reference::Relu, reference::HardSigmoid};
    EXPECT_EQ(w.has(absl::StrCat("features.", i + 1, ".2.fc1.weight")), (i >= 3 && i < 6) || i > 9) << i;
    x = InvertedResidual(w, x, absl::StrCat("features.", i + 1), strides[i], kind);
  }
  x = Means(Layer(w, x, "features.16", 1, reference::HardSwish));
  return {reference::Linear(w, Map(reference::Linear(w, x, "classifier.0"), reference::HardSwish), "classifier.3")};
}

TEST(BuiltinVision, MobilenetV3) {
  ExpectImageNetwork("mobilenet_v3", {{"image", "32"}, {"width", "20"}, {"classes", "7"}}, MobilenetV3);
}

std::vector<Values> Efficientnet(const Weights& w, const Values& image) {
  Values x = Layer(w, image, "features.0", 2, reference::Silu);
  const int blocks[] = {1, 2, 2, 3, 3, 4, 1}, strides[] = {1, 2, 2, 2, 1, 2, 1};
  for (int stage = 0; stage < 7; ++stage) {
    for (int i = 0; i < blocks[stage]; ++i) {
      x = InvertedResidual(w, x, absl::StrCat("features.", stage + 1, ".", i), i == 0 ? strides[stage] : 1,
                           {reference::Silu, reference::Silu, reference::Sigmoid});
    }
  }
  return {reference::Linear(w, Means(Layer(w, x, "features.8", 1, reference::Silu)), "classifier")};
}

TEST(BuiltinVision, EfficientnetB0) {
  ExpectImageNetwork("efficientnet-b0", {{"image", "32"}, {"width", "20"}, {"classes", "7"}}, Efficientnet);
}

std::vector<Values> Vgg(const Weights& w, const Values& image) {
  Values x = image;
  const int convs[] = {2, 2, 3, 3, 3};
  int number = 0;
  for (int stage = 0; stage < 5; ++stage) {
    for (int i = 0; i < convs[stage]; ++i, number += 2)
      x = Map(Conv(w, x, absl::StrCat("features.", number)), reference::Relu);
    x = Pool(x, 2, 2, 0);
    ++number;
  }
  // In the order of the layout's elements.
  if (w.layout() == Layout::kNHWC) x = Permuted(x, {0, 2, 3, 1});
  x.shape = {x.shape[0], static_cast<int64_t>(x.Count(1, 4))};
  x = Map(reference::Linear(w, x, "classifier.0"), reference::Relu);
  x = Map(reference::Linear(w, x, "classifier.3"), reference::Relu);
  return {reference::Linear(w, x, "classifier.6")};
}

TEST(BuiltinVision, Vgg16) { ExpectImageNetwork("vgg-16", {{"image", "64"}, {"width", "5"}, {"classes", "7"}}, Vgg); }

std::vector<Values> Densenet(const Weights& w, const Values& image) {
  const auto activated = [&](const Values& x, const std::string& norm) {
    return Map(BatchNorm(w, x, norm), reference::Relu);
  };
  Values x = Pool(activated(Conv(w, image, "features.conv0", 2), "features.norm0"), 3, 2, 1);
  const int layers[] = {6, 12, 24, 16};
  for (int block = 1; block <= 4; ++block) {
    for (int i = 1; i <= layers[block - 1]; ++i) {
      const std::string layer = absl::StrCat("features.denseblock", block, ".denselayer", i);
      const Values inner = Conv(w, activated(x, layer + ".norm1"), layer + ".conv1");
      x = Joined({x, Conv(w, activated(inner, layer + ".norm2"), layer + ".conv2")});
    }
    const std::string transition = absl::StrCat("features.transition", block);
    if (block < 4) x = Pool(Conv(w, activated(x, transition + ".norm"), transition + ".conv"), 2, 2, 0, true);
  }
  return {reference::Linear(w, Means(activated(x, "features.norm5")), "classifier")};
}

TEST(BuiltinVision, Densenet121) {
  ExpectImageNetwork("densenet-121", {{"image", "32"}, {"width", "8"}, {"classes", "7"}}, Densenet);
}

// Chains of branches as the paper's figures show them: a layer is named after its branch.
std::vector<Values> Inception(const Weights& w, const Values& image) {
  const auto layer = [&](const Values& x, const std::string& name, int64_t stride = 1, bool padded = true) {
    return Map(BatchNorm(w, Conv(w, x, name + ".conv", stride, padded), name + ".bn"), reference::Relu);
  };
  const auto chain = [&](Values x, const std::string& branch, int count) {
    for (int i = 1; i <= count; ++i) x = layer(x, absl::StrCat(branch, "_", i));
    return x;
  };
  Values x = layer(layer(image, "Conv2d_1a_3x3", 2, false), "Conv2d_2a_3x3", 1, false);
  x = layer(Pool(layer(x, "Conv2d_2b_3x3"), 3, 2, 0), "Conv2d_3b_1x1");
  x = Pool(layer(x, "Conv2d_4a_3x3", 1, false), 3, 2, 0);
  for (const std::string name : {"Mixed_5b", "Mixed_5c", "Mixed_5d"}) {
    x = Joined({layer(x, name + ".branch1x1"), chain(x, name + ".branch5x5", 2), chain(x, name + ".branch3x3dbl", 3),
                layer(Pool(x, 3, 1, 1, true), name + ".branch_pool")});
  }
  x = Joined({layer(x, "Mixed_6a.branch3x3", 2, false),
              layer(chain(x, "Mixed_6a.branch3x3dbl", 2), "Mixed_6a.branch3x3dbl_3", 2, false), Pool(x, 3, 2, 0)});
  for (const std::string name : {"Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"}) {
    x = Joined({layer(x, name + ".branch1x1"), chain(x, name + ".branch7x7", 3), chain(x, name + ".branch7x7dbl", 5),
                layer(Pool(x, 3, 1, 1, true), name + ".branch_pool")});
  }
  x = Joined({layer(layer(x, "Mixed_7a.branch3x3_1"), "Mixed_7a.branch3x3_2", 2, false),
              layer(chain(x, "Mixed_7a.branch7x7x3", 3), "Mixed_7a.branch7x7x3_4", 2, false), Pool(x, 3, 2, 0)});
  for (const std::string name : {"Mixed_7b", "Mixed_7c"}) {
    const Values three = layer(x, name + ".branch3x3_1"), twice = chain(x, name + ".branch3x3dbl", 2);
    x = Joined({layer(x, name + ".branch1x1"), layer(three, name + ".branch3x3_2a"),
                layer(three, name + ".branch3x3_2b"), layer(twice, name + ".branch3x3dbl_3a"),
                layer(twice, name + ".branch3x3dbl_3b"), layer(Pool(x, 3, 1, 1, true), name + ".branch_pool")});
  }
  return {reference::Linear(w, Means(x), "fc")};
}

TEST(BuiltinVision, InceptionV3) {
  ExpectImageNetwork("inception_v3", {{"image", "75"}, {"width", "3"}, {"classes", "7"}}, Inception);
}

// With the channels last for the time of the function.
template <typename F>
Values ByPixel(const Values& x, F function) {
  return Permuted(function(Permuted(x, {0, 2, 3, 1})), {0, 3, 1, 2});
}

std::vector<Values> Convnext(const Weights& w, const Values& image) {
  const auto norm = [&](const Values& x, const std::string& name) {
    return ByPixel(x, [&](const Values& rows) { return reference::LayerNorm(w, rows, name, 1e-6); });
  };
  Values x = norm(Conv(w, image, "features.0.0", 4, false), "features.0.1");
  const int blocks[] = {3, 3, 9, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::string down = absl::StrCat("features.", 2 * stage);
    if (stage > 0) x = Conv(w, norm(x, down + ".0"), down + ".1", 2, false);
    for (int i = 0; i < blocks[stage]; ++i) {
      const std::string block = absl::StrCat("features.", 2 * stage + 1, ".", i);
      const Values y = ByPixel(norm(Conv(w, x, block + ".block.0"), block + ".block.2"), [&](const Values& rows) {
        Values z = reference::Linear(w, Map(reference::Linear(w, rows, block + ".block.3"), reference::Gelu),
                                     block + ".block.5");
        const Values scale = w[block + ".layer_scale"];
        for (size_t e = 0; e < z.v.size(); ++e) z.v[e] *= scale.v[e % scale.v.size()];
        return z;
      });
      x = Plus(x, y);
    }
  }
  return {reference::Linear(w, reference::LayerNorm(w, Means(x), "classifier.0", 1e-6), "classifier.2")};
}

TEST(BuiltinVision, ConvnextTiny) {
  ExpectImageNetwork("convnext-tiny", {{"image", "32"}, {"width", "6"}, {"classes", "7"}}, Convnext);
}

// One block of a Swin transformer, pixel by pixel; x is batch x height x width x channels.
struct Windows {
  size_t size, shift;
};
Values SwinBlock(const Weights& w, const Values& x, const std::string& name, size_t heads, const Windows& windows) {
  const size_t window = windows.size, shift = windows.shift;
  const size_t side = static_cast<size_t>(x.shape[1]), channels = x.last(), size = channels / heads;
  const Values all = reference::Linear(w, reference::LayerNorm(w, x, name + ".norm1", 1e-5), name + ".attn.qkv");
  const Values table = w[name + ".attn.relative_position_bias_table"];
  const auto at = [&](size_t n, size_t y, size_t x) {
    return (n * side + (y + shift) % side) * side + (x + shift) % side;
  };
  const auto strip = [&](size_t place) {
    return shift == 0 || place < side - window ? 0 : place < side - shift ? 1 : 2;
  };
  Values mixed(x.shape);
  // Places are those of the shifted image.
  for (size_t pixel = 0; pixel < x.rows(); ++pixel) {
    const size_t n = pixel / (side * side), row = pixel / side % side, column = pixel % side, me = at(n, row, column);
    for (size_t head = 0; head < heads; ++head) {
      std::vector<double> weights;
      std::vector<size_t> others;
      for (size_t i = row / window * window; i < row / window * window + window; ++i) {
        for (size_t j = column / window * window; j < column / window * window + window; ++j) {
          const size_t other = at(n, i, j),
                       distance = (row + window - 1 - i) * (2 * window - 1) + column + window - 1 - j;
          double dot = 0;
          for (size_t d = head * size; d < head * size + size; ++d)
            dot += all.v[me * 3 * channels + d] * all.v[other * 3 * channels + channels + d];
          const bool apart = strip(row) != strip(i) || strip(column) != strip(j);
          weights.push_back(dot / std::sqrt(static_cast<double>(size)) + table.v[distance * heads + head] -
                            (apart ? 100 : 0));
          others.push_back(other);
        }
      }
      reference::Softmax(weights);
      for (size_t k = 0; k < weights.size(); ++k) {
        for (size_t d = head * size; d < head * size + size; ++d)
          mixed.v[me * channels + d] += weights[k] * all.v[others[k] * 3 * channels + 2 * channels + d];
      }
    }
  }
  const Values y = Plus(x, reference::Linear(w, mixed, name + ".attn.proj"));
  const Values inner =
      Map(reference::Linear(w, reference::LayerNorm(w, y, name + ".norm2", 1e-5), name + ".mlp.0"), reference::Gelu);
  return Plus(y, reference::Linear(w, inner, name + ".mlp.3"));
}

std::vector<Values> Swin(const Weights& w, const Values& image) {
  constexpr size_t kWindow = 2;
  Values x =
      reference::LayerNorm(w, Permuted(Conv(w, image, "features.0.0", 4, false), {0, 2, 3, 1}), "features.0.2", 1e-5);
  const int blocks[] = {2, 2, 6, 2};
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0) {
      const std::string merge = absl::StrCat("features.", 2 * stage);
      const int64_t side = x.shape[1] / 2;
      Values merged({x.shape[0], side, side, 4 * x.shape[3]});
      for (size_t i = 0; i < merged.v.size(); ++i) {
        const size_t c = i % x.last(), part = i / x.last() % 4, place = i / merged.last(), n = place / (side * side);
        const size_t row = place / side % side * 2 + part % 2, column = place % side * 2 + part / 2;
        merged.v[i] = x.v[((n * side * 2 + row) * side * 2 + column) * x.last() + c];
      }
      x = reference::Linear(w, reference::LayerNorm(w, merged, merge + ".norm", 1e-5), merge + ".reduction");
    }
    for (int i = 0; i < blocks[stage]; ++i) {
      const bool shifted = i % 2 == 1 && x.shape[1] > static_cast<int64_t>(kWindow);
      x = SwinBlock(w, x, absl::StrCat("features.", 2 * stage + 1, ".", i), size_t{3} << stage,
                    {.size = kWindow, .shift = shifted ? kWindow / 2 : 0});
    }
  }
  x = Permuted(reference::LayerNorm(w, x, "norm", 1e-5), {0, 3, 1, 2});
  return {reference::Linear(w, Means(x), "head")};
}

TEST(BuiltinVision, SwinTiny) {
  ExpectImageNetwork("swin-tiny", {{"image", "64"}, {"window", "2"}, {"width", "7"}, {"classes", "7"}}, Swin);
}

// Each pixel of the result is that of half its place.
Values Doubled(const Values& x) {
  Values y({x.shape[0], x.shape[1], 2 * x.shape[2], 2 * x.shape[3]});
  const size_t height = static_cast<size_t>(x.shape[2]), width = static_cast<size_t>(x.shape[3]);
  for (size_t i = 0; i < y.v.size(); ++i) {
    const size_t column = i % (2 * width), row = i / (2 * width) % (2 * height), plane = i / (4 * width * height);
    y.v[i] = x.v[(plane * height + row / 2) * width + column / 2];
  }
  return y;
}

std::vector<Values> Unet(const Weights& w, const Values& image) {
  const auto layer = [&](const Values& x, const std::string& name) {
    return Map(BatchNorm(w, Conv(w, x, name + ".conv"), name + ".bn"), reference::Relu);
  };
  const auto twice = [&](const Values& x, const std::string& name) {
    return layer(layer(x, name + ".0"), name + ".1");
  };
  std::vector<Values> left;
  Values x = image;
  for (int level = 0; level < 3; ++level) {
    left.push_back(twice(x, absl::StrCat("down", level)));
    x = Pool(left.back(), 2, 2, 0);
  }
  x = twice(x, "bottom");
  for (int level = 2; level >= 0; --level) {
    const std::string up = absl::StrCat("up", level);
    x = twice(Joined({left[level], layer(Doubled(x), up + ".up")}), up);
  }
  return {Conv(w, x, "out")};
}

TEST(BuiltinVision, UnetSmall) {
  ExpectImageNetwork("unet-small", {{"image", "32"}, {"width", "20"}, {"classes", "3"}}, Unet, true);
}

std::vector<Values> Yolo(const Weights& w, const Values& image) {
  const auto layer = [&](const Values& x, const std::string& name, int64_t stride = 1) {
    return Map(BatchNorm(w, Conv(w, x, name + ".conv", stride), name + ".bn"), reference::Silu);
  };
  const auto csp = [&](const Values& x, const std::string& name, bool shortcut) {
    Values y = layer(x, name + ".cv1");
    for (int i = 0; w.has(absl::StrCat(name, ".m.", i, ".cv1.conv.weight")); ++i) {
      const std::string inner = absl::StrCat(name, ".m.", i);
      const Values z = layer(layer(y, inner + ".cv1"), inner + ".cv2");
      y = shortcut ? Plus(y, z) : z;
    }
    return layer(Joined({y, layer(x, name + ".cv2")}), name + ".cv3");
  };
  const Values stem = w.Kernel("model.0.conv.weight");
  Values x = Map(BatchNorm(w, Conv(image, stem, nullptr, {2, 2, 2, 1}), "model.0.bn"), reference::Silu);
  x = csp(layer(x, "model.1", 2), "model.2", true);
  const Values p3 = csp(layer(x, "model.3", 2), "model.4", true), p4 = csp(layer(p3, "model.5", 2), "model.6", true);
  x = layer(csp(layer(p4, "model.7", 2), "model.8", true), "model.9.cv1");
  // Maxima of larger windows at once.
  x = layer(Joined({x, Pool(x, 5, 1, 2), Pool(x, 9, 1, 4), Pool(x, 13, 1, 6)}), "model.9.cv2");
  const Values top = layer(x, "model.10");
  const Values middle = layer(csp(Joined({Doubled(top), p4}), "model.13", false), "model.14");
  const Values small = csp(Joined({Doubled(middle), p3}), "model.17", false);
  const Values medium = csp(Joined({layer(small, "model.18", 2), middle}), "model.20", false);
  const Values large = csp(Joined({layer(medium, "model.21", 2), top}), "model.23", false);
  return {Conv(w, small, "model.24.m.0"), Conv(w, medium, "model.24.m.1"), Conv(w, large, "model.24.m.2")};
}

TEST(BuiltinVision, YoloSmall) {
  ExpectImageNetwork("yolo-small", {{"image", "64"}, {"width", "10"}, {"classes", "3"}}, Yolo, true);
}

Values Conv3d(const Values& x, const Values& w, const Ints& strides, const Ints& pads) {
  Ints shape = {x.shape[0], w.shape[0]};
  for (int d = 0; d < 3; ++d) shape.push_back((x.shape[d + 2] + 2 * pads[d] - w.shape[d + 2]) / strides[d] + 1);
  Values y(shape);
  const auto place = [](const Ints& s, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    return (((a * s[1] + b) * s[2] + c) * s[3] + d) * s[4] + e;
  };
  for (size_t at = 0; at < y.v.size(); ++at) {
    const int64_t pixel = static_cast<int64_t>(at), j = pixel % shape[4], i = pixel / shape[4] % shape[3],
                  t = pixel / (shape[4] * shape[3]) % shape[2];
    const int64_t o = pixel / (shape[4] * shape[3] * shape[2]) % shape[1],
                  n = pixel / (shape[4] * shape[3] * shape[2] * shape[1]);
    for (int64_t tap = 0; tap < static_cast<int64_t>(w.Count(1, 5)); ++tap) {
      const int64_t dx = tap % w.shape[4], dy = tap / w.shape[4] % w.shape[3],
                    dt = tap / (w.shape[4] * w.shape[3]) % w.shape[2];
      const int64_t c = tap / (w.shape[4] * w.shape[3] * w.shape[2]);
      const int64_t f = t * strides[0] + dt - pads[0], row = i * strides[1] + dy - pads[1],
                    column = j * strides[2] + dx - pads[2];
      if (f < 0 || f >= x.shape[2] || row < 0 || row >= x.shape[3] || column < 0 || column >= x.shape[4]) continue;
      y.v[at] += x.v[place(x.shape, n, c, f, row, column)] * w.v[place(w.shape, o, c, dt, dy, dx)];
    }
  }
  return y;
}

TEST(BuiltinVision, Resnet3d18) {
  ModelOptions options;
  options.batch = 2;
  options.extra = {{"image", "32"}, {"frames", "6"}, {"width", "5"}, {"classes", "7"}};
  const Network n = BuiltinNetwork("resnet3d-18", options).value();
  const std::vector<Array> inputs = RandomInputs(n, 3);
  const Weights w(n);
  const auto layer = [&](const Values& x, const std::string& name, const Ints& strides, const Ints& pads) {
    return BatchNorm(w, Conv3d(x, w[name + ".0.weight"], strides, pads), name + ".1");
  };
  Values x = Map(layer(reference::ValuesOf(inputs[0]), "stem", {1, 2, 2}, {1, 3, 3}), reference::Relu);
  for (int stage = 1; stage <= 4; ++stage) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = absl::StrCat("layer", stage, ".", block);
      const Ints strides(3, stage > 1 && block == 0 ? 2 : 1);
      Values y = Map(layer(x, name + ".conv1", strides, {1, 1, 1}), reference::Relu);
      y = layer(y, name + ".conv2", {1, 1, 1}, {1, 1, 1});
      EXPECT_EQ(w.has(name + ".downsample.0.weight"), stage > 1 && block == 0);
      if (stage > 1 && block == 0) x = layer(x, name + ".downsample", strides, {0, 0, 0});
      x = Map(Plus(y, x), reference::Relu);
    }
  }
  reference::ExpectNetworkGives(n, options, inputs, {reference::Linear(w, Means(x), "fc")});
}

}  // namespace
}  // namespace diapason
