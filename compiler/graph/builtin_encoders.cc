// Encoders of text and of sound, named as in Hugging Face's models.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

constexpr int64_t kBuckets = 32, kMaxDistance = 128;

// T5's bucket of a distance: 16 for each direction, of which 8 are of one distance and 8 grow with the logarithm.
int64_t BucketOf(int64_t distance) {
  constexpr int64_t kHalf = kBuckets / 2, kExact = kHalf / 2;
  const int64_t first = distance > 0 ? kHalf : 0, far = std::abs(distance);
  if (far < kExact) return first + far;
  const double octaves =
      std::log(static_cast<double>(far) / kExact) / std::log(static_cast<double>(kMaxDistance) / kExact);
  return first + std::min(kHalf - 1, kExact + static_cast<int64_t>(octaves * (kHalf - kExact)));
}

// 1 x heads x length x length, shared by all layers.
int DistanceBias(NetworkBuilder& b, int64_t length, int64_t heads, const std::string& name) {
  Array buckets(DType::kInt64, {length, length});
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) buckets.set_int(i * length + j, BucketOf(j - i));
  }
  const int x = Embedding(b, b.Constant(name + ".buckets", std::move(buckets)), kBuckets, heads, name);
  return Reshape(b, Transpose(b, x, {2, 0, 1}, name + ".transposed"), {1, heads, length, length}, name + ".bias");
}

// One convolution along time: batch x channels x 1 x length, kernel 3.
int TimeConv(NetworkBuilder& b, int x, int64_t channels, int64_t stride, const std::string& name) {
  using Ints = std::vector<int64_t>;
  const int64_t in = b.Extent(x, 1);
  const float bound = std::sqrt(2.0f / static_cast<float>(in));
  const int weight = b.Constant(name + ".weight", {channels, in, 1, 3}, -bound, bound);
  const int bias = b.Constant(name + ".bias", {channels}, -0.1f, 0.1f);
  return b.Node("conv2d", {x, weight, bias},
                {{"strides", Ints{1, stride}}, {"pads", Ints{0, 1, 0, 1}}, {"layout", std::string("NCHW")}}, name);
}

// Sines, then cosines, of each place.
Array Sinusoids(int64_t length, int64_t hidden) {
  Array table(DType::kFloat32, {length, hidden});
  const int64_t half = hidden / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(half - 1, 1));
  for (int64_t place = 0; place < length; ++place) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(place) * std::exp(-step * static_cast<double>(i));
      table.set(place * hidden + i, std::sin(angle));
      table.set(place * hidden + half + i, std::cos(angle));
    }
  }
  return table;
}

int WhisperLayer(NetworkBuilder& b, int x, const BuiltinArgs& args, const std::string& name) {
  const int64_t hidden = args.at("hidden"), heads = args.at("heads");
  const std::string attn = name + ".self_attn";
  int y = LayerNorm(b, x, attn + "_layer_norm");
  const auto projection = [&](const char* which, bool bias) {
    return SplitHeads(b, Linear(b, y, hidden, attn + which, {.bias = bias}), heads, attn + which);
  };
  AttentionArgs attention;
  attention.q = projection(".q_proj", true);
  attention.k = projection(".k_proj", false);
  attention.v = projection(".v_proj", true);
  attention.scale = ScaleOf(hidden / heads);
  y = Linear(b, JoinHeads(b, Attend(b, attention, attn), attn), hidden, attn + ".out_proj");
  x = b.Node("add", {x, y}, {}, attn + ".residual");
  y = Linear(b, LayerNorm(b, x, name + ".final_layer_norm"), args.at("intermediate"), name + ".fc1");
  y = Linear(b, b.Node("gelu", {y}, {}, name + ".activation"), hidden, name + ".fc2");
  return b.Node("add", {x, y}, {}, name + ".residual");
}

}  // namespace

// The encoder of T5 (Raffel et al. 2019), the small size.
absl::StatusOr<Network> BuildT5Encoder(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckDivides(name, args, "heads", "hidden"));
  NetworkBuilder b = BeginNetwork(name, args);
  const int64_t length = args.at("seq"), hidden = args.at("hidden"), heads = args.at("heads");
  const int ids = TokenInput(b, "input_ids", length), mask = TokenInput(b, "attention_mask", length);
  int x = Embedding(b, ids, args.at("vocab"), hidden, "shared");
  const int distances = DistanceBias(b, length, heads, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias");
  const int bias = b.Node("add", {distances, MaskBias(b, mask, *args.options)}, {}, "position_bias");
  for (int64_t layer = 0; layer < args.at("layers"); ++layer) {
    const std::string attn = absl::StrCat("encoder.block.", layer, ".layer.0"), self = attn + ".SelfAttention";
    int y = RmsNorm(b, x, attn + ".layer_norm");
    // Scores have no scale: it is in the weights of the queries.
    const auto projection = [&](const char* which, float gain) {
      return SplitHeads(b, Linear(b, y, hidden, self + which, {.bias = false, .gain = gain}), heads, self + which);
    };
    AttentionArgs attention;
    attention.q = projection(".q", static_cast<float>(ScaleOf(hidden / heads)));
    attention.k = projection(".k", 1);
    attention.v = projection(".v", 1);
    attention.bias = bias;
    y = Linear(b, JoinHeads(b, Attend(b, attention, self), self), hidden, self + ".o", {.bias = false});
    x = b.Node("add", {x, y}, {}, attn + ".residual");
    const std::string dense = absl::StrCat("encoder.block.", layer, ".layer.1");
    y = Linear(b, RmsNorm(b, x, dense + ".layer_norm"), args.at("intermediate"), dense + ".DenseReluDense.wi",
               {.bias = false});
    y = Linear(b, b.Relu(y, dense + ".relu"), hidden, dense + ".DenseReluDense.wo", {.bias = false});
    x = b.Node("add", {x, y}, {}, dense + ".residual");
  }
  return b.Finish({{"last_hidden_state", RmsNorm(b, x, "encoder.final_layer_norm")}});
}

// The encoder of Whisper (Radford et al. 2022), the tiny size: sound as a spectrogram, batch x mels x frames.
absl::StatusOr<Network> BuildWhisperEncoder(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckDivides(name, args, "heads", "hidden"));
  const int64_t hidden = args.at("hidden");
  if (hidden % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("option 'hidden' of network '", name, "' cannot be ", hidden,
                                                   ": give an even number, of sines and as many cosines of the place"));
  }
  NetworkBuilder b = BeginNetwork(name, args);
  int x = b.Input("input_features", {1, args.at("mels"), args.at("frames")});
  x = b.Node("unsqueeze", {x}, {{"axes", std::vector<int64_t>{2}}}, "features");
  x = b.Node("gelu", {TimeConv(b, x, hidden, 1, "conv1")}, {}, "gelu1");
  x = b.Node("gelu", {TimeConv(b, x, hidden, 2, "conv2")}, {}, "gelu2");
  const int64_t length = b.Extent(x, 3);
  x = Transpose(b, Reshape(b, x, {0, hidden, length}, "convolved"), {0, 2, 1}, "rows");
  x = b.Node("add", {x, b.Constant("embed_positions.weight", Sinusoids(length, hidden))}, {}, "embedded");
  for (int64_t layer = 0; layer < args.at("layers"); ++layer)
    x = WhisperLayer(b, x, args, absl::StrCat("layers.", layer));
  return b.Finish({{"last_hidden_state", LayerNorm(b, x, "layer_norm")}});
}

}  // namespace diapason
