// Built-in transformers and recurrent networks against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin.h"
#include "reference_layers.h"

namespace diapason {
namespace {

using reference::Attention;
using reference::Columns;
using reference::ExpectNetworkGives;
using reference::Map;
using reference::Plus;
using reference::Values;
using reference::ValuesOf;
using reference::Weights;

ModelOptions Small(std::map<std::string, std::string> extra, int64_t batch = 2) {
  ModelOptions options;
  options.batch = batch;
  options.extra = std::move(extra);
  return options;
}

Network Built(const std::string& name, const ModelOptions& options) {
  auto network = BuiltinNetwork(name, options);
  EXPECT_TRUE(network.ok()) << network.status();
  return network.ok() ? *std::move(network) : Network();
}

// Tokens below `vocab`, different from each other where there are enough of them.
Array Tokens(const Network& network, int input, int64_t vocab) {
  const TensorType& type = network.tensors[network.inputs[input]].type;
  EXPECT_EQ(type.dtype, DType::kInt64);
  Array ids(type.dtype, type.shape);
  for (int64_t i = 0; i < ids.elements(); ++i) ids.set_int(i, (i * 7 + 3) % vocab);
  return ids;
}

double NoBias(size_t, size_t, size_t, size_t) { return 0; }

// The first rows of a table of positions, repeated for each element of the batch by Plus.
Values Rows(const Values& table, int64_t start, int64_t length) {
  Values rows({length, table.shape[1]});
  std::copy_n(table.v.begin() + start * table.shape[1], rows.v.size(), rows.v.begin());
  return rows;
}

Values FeedForward(const Weights& w, const Values& x, const std::string& up, const std::string& down,
                   double (*activation)(double)) {
  return reference::Linear(w, Map(reference::Linear(w, x, up), activation), down);
}

std::vector<int64_t> ExtentsOf(const Network& network, int input) {
  return network.tensors[network.inputs[input]].type.shape;
}

TEST(BuiltinTransformers, BertEncodesAsItsPaperSays) {
  const ModelOptions options =
      Small({{"layers", "2"}, {"hidden", "12"}, {"heads", "3"}, {"intermediate", "20"}, {"seq", "5"}, {"vocab", "11"}});
  const Network n = Built("bert-base", options);
  const Array ids = Tokens(n, 0, 11), types = Tokens(n, 2, 2);
  Array mask(DType::kInt64, {2, 5});
  for (int64_t i = 0; i < 10; ++i) mask.set_int(i, i != 3 && i < 8);
  const Weights w(n);
  Values x = Plus(reference::Embedding(w["embeddings.word_embeddings.weight"], ValuesOf(ids)),
                  reference::Embedding(w["embeddings.token_type_embeddings.weight"], ValuesOf(types)));
  x = reference::LayerNorm(w, Plus(x, Rows(w["embeddings.position_embeddings.weight"], 0, 5)), "embeddings.LayerNorm",
                           1e-12);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = absl::StrCat("encoder.layer.", layer), self = name + ".attention.self";
    const auto bias = [&](size_t n, size_t, size_t, size_t j) { return mask.int_at(n * 5 + j) ? 0 : -1e30; };
    Values y = Attention(reference::Linear(w, x, self + ".query"), reference::Linear(w, x, self + ".key"),
                         reference::Linear(w, x, self + ".value"), {3, 0.5}, bias);
    y = reference::Linear(w, y, name + ".attention.output.dense");
    x = reference::LayerNorm(w, Plus(x, y), name + ".attention.output.LayerNorm", 1e-12);
    y = FeedForward(w, x, name + ".intermediate.dense", name + ".output.dense", reference::Gelu);
    x = reference::LayerNorm(w, Plus(x, y), name + ".output.LayerNorm", 1e-12);
  }
  Values first({2, 12});
  for (int64_t i = 0; i < 24; ++i) first.v[i] = x.v[i / 12 * 60 + i % 12];
  const Values pooled = Map(reference::Linear(w, first, "pooler.dense"), [](double v) { return std::tanh(v); });
  ExpectNetworkGives(n, options, {ids, mask, types}, {x, pooled});
}

// batch x groups x length x size, as caches are, of batch x length x (groups * size).
Values Heads(const Values& x, int64_t groups) {
  Values split = x;
  split.shape = {x.shape[0], x.shape[1], groups, x.shape[2] / groups};
  return reference::Permuted(split, {0, 2, 1, 3});
}

// A decoder's cache of one layer, batch x length x (groups * size), and one with the new tokens behind.
struct Past {
  Values k, v;
};

Values Appended(const Values& past, const Values& fresh) {
  return past.v.empty() ? fresh : reference::Joined({past, fresh});
}

// Inputs of a decoder, in the order of the network's.
struct DecoderInputs {
  std::vector<Array> arrays;
  std::vector<Past> past;
  int64_t seen = 0;
};

DecoderInputs InputsOf(const Network& n, int64_t layers, int64_t vocab) {
  DecoderInputs inputs{RandomInputs(n, 5), std::vector<Past>(layers), 0};
  inputs.arrays[0] = Tokens(n, 0, vocab);
  for (size_t i = 1; i < inputs.arrays.size(); ++i) {
    Values cache = reference::Permuted(ValuesOf(inputs.arrays[i]), {0, 2, 1, 3});
    inputs.seen = cache.shape[1];
    cache.shape = {cache.shape[0], cache.shape[1], cache.shape[2] * cache.shape[3]};
    (i % 2 == 1 ? inputs.past[(i - 1) / 2].k : inputs.past[(i - 1) / 2].v) = cache;
  }
  return inputs;
}

TEST(BuiltinTransformers, Gpt2DecodesAllTokensOrOneBehindACache) {
  for (const char* decode : {"0", "1"}) {
    const ModelOptions options = Small({{"layers", "2"},
                                        {"hidden", "12"},
                                        {"heads", "3"},
                                        {"intermediate", "20"},
                                        {"seq", "5"},
                                        {"vocab", "11"},
                                        {"decode", decode}});
    const Network n = Built("gpt2", options);
    DecoderInputs in = InputsOf(n, 2, 11);
    EXPECT_EQ(n.inputs.size(), *decode == '1' ? 5u : 1u);
    EXPECT_EQ(ExtentsOf(n, 0), (Ints{2, *decode == '1' ? 1 : 5}));
    const Weights w(n);
    const size_t seen = static_cast<size_t>(in.seen);
    EXPECT_EQ(seen, *decode == '1' ? 5u : 0u);
    const auto causal = [&](size_t, size_t, size_t i, size_t j) { return j <= seen + i ? 0 : -1e30; };
    Values x = reference::Embedding(w["wte.weight"], ValuesOf(in.arrays[0]));
    x = Plus(x, Rows(w["wpe.weight"], in.seen, x.shape[1]));
    std::vector<Values> want(1);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = absl::StrCat("h.", layer);
      const Values all = reference::Linear(w, reference::LayerNorm(w, x, name + ".ln_1", 1e-5), name + ".attn.c_attn");
      const Values k = Appended(in.past[layer].k, Columns(all, 12, 24)),
                   v = Appended(in.past[layer].v, Columns(all, 24, 36));
      want.push_back(Heads(k, 3));
      want.push_back(Heads(v, 3));
      x = Plus(x, reference::Linear(w, Attention(Columns(all, 0, 12), k, v, {3, 0.5}, causal), name + ".attn.c_proj"));
      x = Plus(x, FeedForward(w, reference::LayerNorm(w, x, name + ".ln_2", 1e-5), name + ".mlp.c_fc",
                              name + ".mlp.c_proj", reference::GeluTanh));
    }
    want[0] = reference::Linear(reference::LayerNorm(w, x, "ln_f", 1e-5), reference::Permuted(w["wte.weight"], {1, 0}));
    ExpectNetworkGives(n, options, in.arrays, want);
  }
}

// Pairs (i, i + size / 2) of each head as complex numbers, turned by their place times 10000^(-2 i / size).
Values Turned(Values x, size_t size, size_t start) {
  const size_t length = static_cast<size_t>(x.shape[1]);
  for (size_t row = 0; row < x.rows(); ++row) {
    for (size_t head = 0; head < x.last() / size; ++head) {
      for (size_t i = 0; i < size / 2; ++i) {
        const double angle = static_cast<double>(start + row % length) /
                             std::pow(10000.0, 2.0 * static_cast<double>(i) / static_cast<double>(size));
        double& a = x.v[row * x.last() + head * size + i];
        double& b = x.v[row * x.last() + head * size + i + size / 2];
        const double real = a * std::cos(angle) - b * std::sin(angle),
                     imaginary = a * std::sin(angle) + b * std::cos(angle);
        a = real;
        b = imaginary;
      }
    }
  }
  return x;
}

TEST(BuiltinTransformers, LlamaDecodesAllTokensOrOneBehindACache) {
  for (const char* decode : {"0", "1"}) {
    const ModelOptions options = Small({{"layers", "2"},
                                        {"hidden", "24"},
                                        {"heads", "6"},
                                        {"kv_heads", "2"},
                                        {"intermediate", "20"},
                                        {"seq", "5"},
                                        {"vocab", "11"},
                                        {"decode", decode}});
    const Network n = Built("llama-tiny", options);
    DecoderInputs in = InputsOf(n, 2, 11);
    const Weights w(n);
    const size_t seen = static_cast<size_t>(in.seen);
    EXPECT_EQ(seen, *decode == '1' ? 5u : 0u);
    const auto causal = [&](size_t, size_t, size_t i, size_t j) { return j <= seen + i ? 0 : -1e30; };
    Values x = reference::Embedding(w["embed_tokens.weight"], ValuesOf(in.arrays[0]));
    std::vector<Values> want(1);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = absl::StrCat("layers.", layer), attn = name + ".self_attn", mlp = name + ".mlp";
      Values y = reference::RmsNorm(w, x, name + ".input_layernorm", 1e-6);
      const Values q = Turned(reference::Linear(w, y, attn + ".q_proj"), 4, seen);
      const Values k = Appended(in.past[layer].k, Turned(reference::Linear(w, y, attn + ".k_proj"), 4, seen));
      const Values v = Appended(in.past[layer].v, reference::Linear(w, y, attn + ".v_proj"));
      want.push_back(Heads(k, 2));
      want.push_back(Heads(v, 2));
      x = Plus(x, reference::Linear(w, Attention(q, k, v, {6, 0.5}, causal), attn + ".o_proj"));
      y = reference::RmsNorm(w, x, name + ".post_attention_layernorm", 1e-6);
      Values gate = Map(reference::Linear(w, y, mlp + ".gate_proj"), reference::Silu);
      const Values up = reference::Linear(w, y, mlp + ".up_proj");
      for (size_t i = 0; i < gate.v.size(); ++i) gate.v[i] *= up.v[i];
      x = Plus(x, reference::Linear(w, gate, mlp + ".down_proj"));
    }
    want[0] = reference::Linear(w, reference::RmsNorm(w, x, "norm", 1e-6), "lm_head");
    ExpectNetworkGives(n, options, in.arrays, want);
  }
}

// Tokens of an image: batch x pixels x channels.
Values PixelRows(const Values& image) {
  Values rows = reference::Permuted(image, {0, 2, 3, 1});
  rows.shape = {image.shape[0], image.shape[2] * image.shape[3], image.shape[1]};
  return rows;
}

TEST(BuiltinTransformers, VitClassifiesByTheFirstToken) {
  for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    ModelOptions options = Small({{"image", "32"},
                                  {"patch", "8"},
                                  {"layers", "2"},
                                  {"hidden", "12"},
                                  {"heads", "3"},
                                  {"intermediate", "20"},
                                  {"classes", "7"}});
    options.layout = layout;
    const Network n = Built("vit-b16", options);
    const std::vector<Array> inputs = RandomInputs(n, 3);
    const Weights w(n, layout);
    const Values bias = w["conv_proj.bias"];
    const Values patches = PixelRows(reference::Conv(reference::ChannelsFirst(ValuesOf(inputs[0]), layout),
                                                     w.Kernel("conv_proj.weight"), &bias, {8}));
    Values token({2, 1, 12});
    for (size_t i = 0; i < token.v.size(); ++i) token.v[i] = w["class_token"].v[i % 12];
    Values x = Plus(reference::Joined({token, patches}), w["encoder.pos_embedding"]);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = absl::StrCat("encoder.layers.encoder_layer_", layer), attn = name + ".self_attention";
      const Values all = reference::Linear(w, reference::LayerNorm(w, x, name + ".ln_1", 1e-6), attn + ".in_proj");
      const Values y = Attention(Columns(all, 0, 12), Columns(all, 12, 24), Columns(all, 24, 36), {3, 0.5}, NoBias);
      x = Plus(x, reference::Linear(w, y, attn + ".out_proj"));
      x = Plus(x, FeedForward(w, reference::LayerNorm(w, x, name + ".ln_2", 1e-6), name + ".mlp.0", name + ".mlp.3",
                              reference::Gelu));
    }
    x = reference::LayerNorm(w, x, "encoder.ln", 1e-6);
    Values first({2, 12});
    for (size_t i = 0; i < 24; ++i) first.v[i] = x.v[i / 12 * 17 * 12 + i % 12];
    ExpectNetworkGives(n, options, inputs, {reference::Linear(w, first, "heads.head")});
  }
}

// T5's bucket of a distance, by where new ones begin: at 8 * 16^(i / 8), rounded up.
size_t BucketOf(int64_t distance) {
  const int64_t far = distance < 0 ? -distance : distance, firsts[] = {12, 16, 23, 32, 46, 64, 91};
  size_t bucket = static_cast<size_t>(far < 8 ? far : 8);
  for (int64_t first : firsts) bucket += far >= first ? 1 : 0;
  return bucket + (distance > 0 ? 16 : 0);
}

TEST(BuiltinTransformers, T5EncodesWithABiasByDistance) {
  constexpr int64_t kLength = 20;
  const ModelOptions options = Small(
      {{"layers", "2"}, {"hidden", "12"}, {"heads", "3"}, {"intermediate", "20"}, {"seq", "20"}, {"vocab", "11"}});
  const Network n = Built("t5-encoder", options);
  const Array ids = Tokens(n, 0, 11);
  Array mask(DType::kInt64, {2, kLength});
  for (int64_t i = 0; i < 2 * kLength; ++i) mask.set_int(i, i != 3 && i < 33);
  const Weights w(n);
  const Values table = w["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"];
  const auto bias = [&](size_t n, size_t head, size_t i, size_t j) {
    if (!mask.int_at(static_cast<int64_t>(n * kLength + j))) return -1e30;
    return table.v[BucketOf(static_cast<int64_t>(j) - static_cast<int64_t>(i)) * 3 + head];
  };
  Values x = reference::Embedding(w["shared.weight"], ValuesOf(ids));
  for (int layer = 0; layer < 2; ++layer) {
    const std::string block = absl::StrCat("encoder.block.", layer), self = block + ".layer.0.SelfAttention",
                      dense = block + ".layer.1";
    const Values y = reference::RmsNorm(w, x, block + ".layer.0.layer_norm", 1e-6);
    const Values mixed = Attention(reference::Linear(w, y, self + ".q"), reference::Linear(w, y, self + ".k"),
                                   reference::Linear(w, y, self + ".v"), {3, 1}, bias);
    x = Plus(x, reference::Linear(w, mixed, self + ".o"));
    x = Plus(x, FeedForward(w, reference::RmsNorm(w, x, dense + ".layer_norm", 1e-6), dense + ".DenseReluDense.wi",
                            dense + ".DenseReluDense.wo", reference::Relu));
  }
  ExpectNetworkGives(n, options, {ids, mask}, {reference::RmsNorm(w, x, "encoder.final_layer_norm", 1e-6)});
}

// The buckets of far tokens, of which the other test has none: where a new one begins.
TEST(BuiltinTransformers, T5CountsDistancesBeyond128AsOne) {
  const Network n = Built(
      "t5-encoder",
      Small({{"layers", "1"}, {"hidden", "2"}, {"heads", "1"}, {"intermediate", "2"}, {"seq", "200"}, {"vocab", "2"}},
            1));
  const Values buckets = Weights(n)["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.buckets"];
  for (int64_t i = 0; i < 200; ++i) {
    for (int64_t j = 0; j < 200; ++j) ASSERT_EQ(buckets.v[i * 200 + j], static_cast<double>(BucketOf(j - i))) << j - i;
  }
}

// A convolution along the second dimension of batch x length x channels with a kernel of 3 and GELU behind it.
Values TimeConv(const Weights& w, const Values& x, const std::string& name, int64_t stride) {
  const Values kernel = w[name + ".weight"], bias = w[name + ".bias"];
  const size_t in = x.last(), length = static_cast<size_t>((x.shape[1] - 1) / stride + 1),
               out = static_cast<size_t>(kernel.shape[0]);
  Values y({x.shape[0], static_cast<int64_t>(length), kernel.shape[0]});
  for (size_t n = 0; n < static_cast<size_t>(x.shape[0]); ++n) {
    for (size_t t = 0; t < length; ++t) {
      for (size_t o = 0; o < out; ++o) {
        double sum = bias.v[o];
        for (int64_t tap = 0; tap < 3; ++tap) {
          const int64_t from = static_cast<int64_t>(t) * stride + tap - 1;
          if (from < 0 || from >= x.shape[1]) continue;
          for (size_t c = 0; c < in; ++c)
            sum += x.v[(n * x.shape[1] + from) * in + c] * kernel.v[(o * in + c) * 3 + tap];
        }
        y.v[(n * length + t) * out + o] = reference::Gelu(sum);
      }
    }
  }
  return y;
}

TEST(BuiltinTransformers, WhisperEncodesASpectrogram) {
  const ModelOptions options = Small(
      {{"layers", "2"}, {"hidden", "12"}, {"heads", "3"}, {"intermediate", "20"}, {"mels", "5"}, {"frames", "13"}});
  const Network n = Built("whisper-encoder", options);
  const std::vector<Array> inputs = RandomInputs(n, 3);
  const Weights w(n);
  Values x = TimeConv(w, TimeConv(w, reference::Permuted(ValuesOf(inputs[0]), {0, 2, 1}), "conv1", 1), "conv2", 2);
  ASSERT_EQ(x.shape, (Ints{2, 7, 12}));
  // Six sines and six cosines with periods from 2 pi to 20000 pi.
  for (size_t i = 0; i < x.v.size(); ++i) {
    const double place = static_cast<double>(i / 12 % 7),
                 angle = place * std::pow(10000.0, -static_cast<double>(i % 6) / 5);
    x.v[i] += i % 12 < 6 ? std::sin(angle) : std::cos(angle);
  }
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = absl::StrCat("layers.", layer), attn = name + ".self_attn";
    EXPECT_FALSE(w.has(attn + ".k_proj.bias"));
    const Values y = reference::LayerNorm(w, x, attn + "_layer_norm", 1e-5);
    const Values mixed = Attention(reference::Linear(w, y, attn + ".q_proj"), reference::Linear(w, y, attn + ".k_proj"),
                                   reference::Linear(w, y, attn + ".v_proj"), {3, 0.5}, NoBias);
    x = Plus(x, reference::Linear(w, mixed, attn + ".out_proj"));
    x = Plus(x, FeedForward(w, reference::LayerNorm(w, x, name + ".final_layer_norm", 1e-5), name + ".fc1",
                            name + ".fc2", reference::Gelu));
  }
  ExpectNetworkGives(n, options, inputs, {reference::LayerNorm(w, x, "layer_norm", 1e-5)});
}

// Gates in the order input, forget, cell, output; the first state is zero.
Values Lstm(const Weights& w, const Values& x, const std::string& name, bool backward) {
  const Values r = w[name + ".recurrent.weight"], in = reference::Linear(w, x, name + ".input");
  const size_t hidden = static_cast<size_t>(r.shape[0]), length = static_cast<size_t>(x.shape[1]);
  Values y({x.shape[0], x.shape[1], r.shape[0]});
  for (size_t n = 0; n < static_cast<size_t>(x.shape[0]); ++n) {
    std::vector<double> h(hidden), c(hidden);
    for (size_t step = 0; step < length; ++step) {
      const size_t t = backward ? length - 1 - step : step;
      std::vector<double> gates(4 * hidden);
      for (size_t g = 0; g < gates.size(); ++g) {
        gates[g] = in.v[(n * length + t) * gates.size() + g];
        for (size_t k = 0; k < hidden; ++k) gates[g] += h[k] * r.v[k * gates.size() + g];
      }
      for (size_t i = 0; i < hidden; ++i) {
        c[i] = reference::Sigmoid(gates[hidden + i]) * c[i] +
               reference::Sigmoid(gates[i]) * std::tanh(gates[2 * hidden + i]);
        h[i] = reference::Sigmoid(gates[3 * hidden + i]) * std::tanh(c[i]);
        y.v[(n * length + t) * hidden + i] = h[i];
      }
    }
  }
  return y;
}

TEST(BuiltinTransformers, LstmTaggerReadsInBothDirections) {
  const ModelOptions options =
      Small({{"layers", "2"}, {"hidden", "5"}, {"embedding", "6"}, {"seq", "7"}, {"vocab", "11"}, {"tags", "4"}});
  const Network n = Built("lstm-tagger", options);
  const Array ids = Tokens(n, 0, 11);
  const Weights w(n);
  Values x = reference::Embedding(w["embedding.weight"], ValuesOf(ids));
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = absl::StrCat("lstm.", layer);
    const Values forward = Lstm(w, x, name + ".forward", false), backward = Lstm(w, x, name + ".backward", true);
    x = Values({2, 7, 10});
    for (size_t i = 0; i < x.v.size(); ++i)
      x.v[i] = i % 10 < 5 ? forward.v[i / 10 * 5 + i % 10] : backward.v[i / 10 * 5 + i % 10 - 5];
  }
  x = reference::Linear(w, x, "hidden2tag");
  for (size_t row = 0; row < x.rows(); ++row) {
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += std::exp(x.v[row * 4 + i]);
    for (size_t i = 0; i < 4; ++i) x.v[row * 4 + i] -= std::log(sum);
  }
  ExpectNetworkGives(n, options, {ids}, {x});
}

}  // namespace
}  // namespace diapason
