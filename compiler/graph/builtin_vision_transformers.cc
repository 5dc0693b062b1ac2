// Transformers over images, named as in torchvision.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

// An image as a sequence: batch x (height * width) x channels.
int PixelRows(NetworkBuilder& b, int x, const std::string& name) {
  const int64_t channels = b.ChannelsOf(x);
  return Reshape(b, ChannelsLast(b, x, name + ".channels_last"), {0, -1, channels}, name);
}

int EncoderLayer(NetworkBuilder& b, int x, const BuiltinArgs& args, const std::string& name) {
  const int64_t hidden = args.at("hidden"), heads = args.at("heads");
  const std::string attn = name + ".self_attention";
  const int all = Linear(b, LayerNorm(b, x, name + ".ln_1", 1e-6), 3 * hidden, attn + ".in_proj");
  const auto part = [&](int64_t which, const char* role) {
    return SplitHeads(b, Slice(b, all, -1, {which * hidden, (which + 1) * hidden}, attn + role), heads, attn + role);
  };
  AttentionArgs attention;
  attention.q = part(0, ".query");
  attention.k = part(1, ".key");
  attention.v = part(2, ".value");
  attention.scale = ScaleOf(hidden / heads);
  int y = Linear(b, JoinHeads(b, Attend(b, attention, attn), attn), hidden, attn + ".out_proj");
  x = b.Node("add", {y, x}, {}, attn + ".residual");
  y = Linear(b, LayerNorm(b, x, name + ".ln_2", 1e-6), args.at("intermediate"), name + ".mlp.0");
  y = Linear(b, b.Node("gelu", {y}, {}, name + ".mlp.1"), hidden, name + ".mlp.3");
  return b.Node("add", {x, y}, {}, name + ".residual");
}

// Swin: attention within windows of an image, batch x height x width x channels; every second block has its windows
// shifted.
class Swin {
 public:
  Swin(NetworkBuilder& b, const BuiltinArgs& args) : b_(b), window_(args.at("window")), size_(Narrowed(32, args)) {}

  int Body(int x) {
    x = b_.Conv2d(x, {.channels = 3 * size_, .kernel = 4, .stride = 4, .bias = true}, "features.0.0");
    x = LayerNorm(b_, ChannelsLast(b_, x, "features.0.1"), "features.0.2");
    const int blocks[] = {2, 2, 6, 2};
    for (int stage = 0; stage < 4; ++stage) {
      if (stage > 0) x = Merged(x, absl::StrCat("features.", 2 * stage));
      for (int i = 0; i < blocks[stage]; ++i)
        x = Block(x, int64_t{3} << stage, i % 2 == 1, absl::StrCat("features.", 2 * stage + 1, ".", i));
    }
    return LayerNorm(b_, x, "norm");
  }

 private:
  using Ints = std::vector<int64_t>;

  // Four neighbours become one pixel of twice the channels.
  int Merged(int x, const std::string& name) {
    std::vector<int> parts;
    const int64_t height = b_.Extent(x, 1), width = b_.Extent(x, 2), channels = b_.Extent(x, 3);
    for (const Ints& start : {Ints{0, 0}, Ints{1, 0}, Ints{0, 1}, Ints{1, 1}}) {
      const Attributes every_second = {
          {"starts", start}, {"ends", Ints{height, width}}, {"axes", Ints{1, 2}}, {"steps", Ints{2, 2}}};
      parts.push_back(b_.Node("slice", {x}, every_second, absl::StrCat(name, ".part", parts.size())));
    }
    x = LayerNorm(b_, Concat(b_, parts, 3, name + ".parts"), name + ".norm");
    return Linear(b_, x, 2 * channels, name + ".reduction", {.bias = false});
  }

  // Rows and columns moved by so many pixels towards 0, those in front to the end.
  int Rolled(int x, int64_t shift, const std::string& name) {
    for (int axis = 1; axis <= 2; ++axis) {
      const std::string roll = absl::StrCat(name, axis);
      const int64_t extent = b_.Extent(x, axis), first = (shift + extent) % extent;
      const int back = Slice(b_, x, axis, {first, extent}, roll + ".back");
      x = Concat(b_, {back, Slice(b_, x, axis, {0, first}, roll + ".front")}, axis, roll);
    }
    return x;
  }

  // What is added to scores of pixels of a window: by their distance, heads x pixels x pixels, and, where windows are
  // shifted, -100 between pixels that are no neighbours in the image, windows x 1 x pixels x pixels.
  int DistanceBias(int64_t heads, const std::string& name) {
    const int64_t pixels = window_ * window_, side = 2 * window_ - 1;
    Array places(DType::kInt64, {pixels, pixels});
    for (int64_t i = 0; i < pixels; ++i) {
      for (int64_t j = 0; j < pixels; ++j) {
        const int64_t down = i / window_ - j / window_, right = i % window_ - j % window_;
        places.set_int(i * pixels + j, (down + window_ - 1) * side + right + window_ - 1);
      }
    }
    const std::string table = name + ".relative_position_bias_table";
    const int weight = b_.Constant(table, {side * side, heads}, -0.5f, 0.5f);
    const int index = b_.Constant(name + ".relative_position_index", std::move(places));
    return Transpose(b_, b_.Node("gather", {weight, index}, {{"axis", int64_t{0}}}, table + ".rows"), {2, 0, 1},
                     table + ".bias");
  }
  int ShiftMask(int64_t rows, int64_t columns, int64_t shift, const std::string& name) {
    const int64_t pixels = window_ * window_;
    const auto strip = [&](int64_t at, int64_t extent) {
      return at < extent - window_ ? 0 : at < extent - shift ? 1 : 2;
    };
    const auto region = [&](int64_t window, int64_t pixel) {
      const int64_t y = window / columns * window_ + pixel / window_, x = window % columns * window_ + pixel % window_;
      return 3 * strip(y, rows * window_) + strip(x, columns * window_);
    };
    Array mask(DType::kFloat32, {rows * columns, 1, pixels, pixels});
    for (int64_t i = 0; i < mask.elements(); ++i) {
      const int64_t window = i / (pixels * pixels);
      if (region(window, i / pixels % pixels) != region(window, i % pixels)) mask.set(i, -100);
    }
    return b_.Constant(name, std::move(mask));
  }

  // x is batch x windows x pixels x channels.
  int Attention(int x, int64_t heads, int bias, const std::string& name) {
    const int64_t channels = b_.Extent(x, 3);
    const int all = Linear(b_, x, 3 * channels, name + ".qkv");
    const auto part = [&](int64_t which, Ints perm, const std::string& role) {
      const int columns = Slice(b_, all, 3, {which * channels, (which + 1) * channels}, name + role);
      return Transpose(b_, Reshape(b_, columns, {0, 0, 0, heads, size_}, name + role + ".split"), std::move(perm),
                       name + role + ".heads");
    };
    const int q = part(0, {0, 1, 3, 2, 4}, ".query"), k = part(1, {0, 1, 3, 4, 2}, ".key"),
              v = part(2, {0, 1, 3, 2, 4}, ".value");
    const int scaled = b_.Node("mul", {q, Scalar(b_, ScaleOf(size_), name + ".scale")}, {}, name + ".scaled");
    int scores = b_.Node("matmul", {scaled, k}, {}, name + ".scores");
    scores = b_.Node("add", {scores, bias}, {}, name + ".biased");
    const int weights = b_.Node("softmax", {scores}, {{"axis", int64_t{-1}}}, name + ".softmax");
    const int y =
        Transpose(b_, b_.Node("matmul", {weights, v}, {}, name + ".context"), {0, 1, 3, 2, 4}, name + ".rows");
    return Linear(b_, Reshape(b_, y, {0, 0, 0, channels}, name + ".joined"), channels, name + ".proj");
  }

  int Block(int x, int64_t heads, bool shifted, const std::string& name) {
    const int64_t height = b_.Extent(x, 1), width = b_.Extent(x, 2), channels = b_.Extent(x, 3);
    const int64_t rows = height / window_, columns = width / window_;
    // One window is the whole image: there is nothing to shift to.
    const int64_t shift = shifted && rows > 1 ? window_ / 2 : 0;
    const std::string attn = name + ".attn";
    int y = LayerNorm(b_, x, name + ".norm1");
    if (shift > 0) y = Rolled(y, shift, attn + ".rolled");
    y = Reshape(b_, y, {0, rows, window_, columns, window_, channels}, attn + ".grid");
    y = Reshape(b_, Transpose(b_, y, {0, 1, 3, 2, 4, 5}, attn + ".tiles"),
                {0, rows * columns, window_ * window_, channels}, attn + ".windows");
    int bias = DistanceBias(heads, attn);
    if (shift > 0)
      bias = b_.Node("add", {ShiftMask(rows, columns, shift, attn + ".mask"), bias}, {}, attn + ".masked_bias");
    y = Attention(y, heads, bias, attn);
    y = Reshape(b_, y, {0, rows, columns, window_, window_, channels}, attn + ".result_tiles");
    y = Reshape(b_, Transpose(b_, y, {0, 1, 3, 2, 4, 5}, attn + ".result_grid"), {0, height, width, channels},
                attn + ".result");
    if (shift > 0) y = Rolled(y, -shift, attn + ".unrolled");
    x = b_.Node("add", {x, y}, {}, attn + ".residual");
    y = Linear(b_, LayerNorm(b_, x, name + ".norm2"), 4 * channels, name + ".mlp.0");
    y = Linear(b_, b_.Node("gelu", {y}, {}, name + ".mlp.1"), channels, name + ".mlp.3");
    return b_.Node("add", {x, y}, {}, name + ".residual");
  }

  NetworkBuilder& b_;
  int64_t window_, size_;  // size_: elements of a head
};

}  // namespace

// Swin transformer (Liu et al. 2021), the tiny size.
absl::StatusOr<Network> BuildSwin(const std::string& name, const BuiltinArgs& args) {
  const int64_t multiple = 32 * args.at("window");
  if (args.at("image") % multiple != 0) {
    return absl::InvalidArgumentError(absl::StrCat("option 'image' of network '", name, "' cannot be ",
                                                   args.at("image"), ": give a multiple of ", multiple,
                                                   ", 32 times 'window'"));
  }
  NetworkBuilder b = BeginNetwork(name, args);
  int x = Swin(b, args).Body(ImageInput(b, args));
  x = b.Node("reduce_mean", {x}, {{"axes", std::vector<int64_t>{1, 2}}, {"keepdims", int64_t{0}}}, "avgpool");
  return b.Finish(ClassifierOutput(b, b.Dense(x, args.at("classes"), "head"), args));
}

// ViT-B/16 (Dosovitskiy et al. 2020).
absl::StatusOr<Network> BuildVit(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckDivides(name, args, "heads", "hidden"));
  RETURN_IF_ERROR(CheckDivides(name, args, "patch", "image"));
  NetworkBuilder b = BeginNetwork(name, args);
  const int64_t hidden = args.at("hidden"), patch = args.at("patch");
  int x =
      b.Conv2d(ImageInput(b, args), {.channels = hidden, .kernel = patch, .stride = patch, .bias = true}, "conv_proj");
  x = PixelRows(b, x, "patches");
  const int token = b.Constant("class_token", {1, 1, hidden}, -1, 1);
  const int tokens =
      b.Node("expand", {token}, {{"shape", std::vector<int64_t>{b.Extent(x, 0), 1, hidden}}}, "class_tokens");
  x = Concat(b, {tokens, x}, 1, "tokens");
  x = b.Node("add", {x, b.Constant("encoder.pos_embedding", {1, b.Extent(x, 1), hidden}, -0.3f, 0.3f)}, {}, "embedded");
  for (int64_t layer = 0; layer < args.at("layers"); ++layer) {
    x = EncoderLayer(b, x, args, absl::StrCat("encoder.layers.encoder_layer_", layer));
  }
  x = LayerNorm(b, x, "encoder.ln", 1e-6);
  x = Reshape(b, Slice(b, x, 1, {0, 1}, "class"), {0, hidden}, "class.row");
  return b.Finish(ClassifierOutput(b, b.Dense(x, args.at("classes"), "heads.head"), args));
}

}  // namespace diapason
