// Transformers over tokens. Layers are named as in Hugging Face's models; weights of products are inputs x outputs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

// The first `length` rows, from `start` on, of an embedding of positions.
int PositionRows(NetworkBuilder& b, int64_t start, int64_t length, int64_t columns, const std::string& name) {
  const int64_t rows = std::max<int64_t>(start + length, 512);
  return Slice(b, b.Constant(name + ".weight", {rows, columns}, -0.3f, 0.3f), 0, {start, start + length}, name);
}

// What a decoder remembers of a layer: keys and values of past tokens, batch x groups x past x size.
struct Cache {
  int k = -1, v = -1;
};

// Token inputs, causal bias and caches of a decoder: all tokens at once, or one after `seq` earlier ones.
class Decoder {
 public:
  Decoder(NetworkBuilder& b, const BuiltinArgs& args, int64_t groups, int64_t size)
      : b_(b), past_(args.at("decode") ? args.at("seq") : 0), length_(args.at("decode") ? 1 : args.at("seq")) {
    ids_ = TokenInput(b, "input_ids", length_);
    for (int64_t layer = 0; past_ > 0 && layer < args.at("layers"); ++layer) {
      Cache cache;
      cache.k = b.Input(absl::StrCat("past.", layer, ".key"), {1, groups, past_, size});
      cache.v = b.Input(absl::StrCat("past.", layer, ".value"), {1, groups, past_, size});
      caches_.push_back(cache);
    }
    if (length_ > 1) bias_ = CausalBias(b, length_, past_, "causal_bias");
  }

  int ids() const { return ids_; }
  int64_t past() const { return past_; }
  int64_t length() const { return length_; }

  // Attention to what has been seen and to the new tokens, whose keys and values become outputs with the past ones.
  int Attention(int64_t layer, const AttentionArgs& fresh, const std::string& name) {
    AttentionArgs args = fresh;
    args.bias = bias_;
    if (past_ > 0) {
      args.k = Concat(b_, {caches_[layer].k, args.k}, 2, name + ".all_keys");
      args.v = Concat(b_, {caches_[layer].v, args.v}, 2, name + ".all_values");
    }
    outputs_.emplace_back(absl::StrCat("present.", layer, ".key"), args.k);
    outputs_.emplace_back(absl::StrCat("present.", layer, ".value"), args.v);
    return JoinHeads(b_, Attend(b_, args, name), name);
  }

  absl::StatusOr<Network> Finish(int logits) {
    outputs_.insert(outputs_.begin(), {"logits", logits});
    return b_.Finish(outputs_);
  }

 private:
  NetworkBuilder& b_;
  int64_t past_, length_;
  int ids_ = 0, bias_ = -1;
  std::vector<Cache> caches_;
  std::vector<std::pair<std::string, int>> outputs_;
};

int BertLayer(NetworkBuilder& b, int x, int bias, const BuiltinArgs& args, const std::string& name) {
  const int64_t hidden = args.at("hidden"), heads = args.at("heads");
  const auto projection = [&](const std::string& which) {
    const std::string layer = absl::StrCat(name, ".attention.self.", which);
    return SplitHeads(b, Linear(b, x, hidden, layer), heads, layer);
  };
  AttentionArgs attention;
  attention.q = projection("query");
  attention.k = projection("key");
  attention.v = projection("value");
  attention.scale = ScaleOf(hidden / heads);
  attention.bias = bias;
  int y = JoinHeads(b, Attend(b, attention, name + ".attention"), name + ".attention");
  y = Linear(b, y, hidden, name + ".attention.output.dense");
  x = LayerNorm(b, b.Node("add", {y, x}, {}, name + ".attention.residual"), name + ".attention.output.LayerNorm",
                1e-12);
  y = Linear(b, x, args.at("intermediate"), name + ".intermediate.dense");
  y = Linear(b, b.Node("gelu", {y}, {}, name + ".gelu"), hidden, name + ".output.dense");
  return LayerNorm(b, b.Node("add", {y, x}, {}, name + ".residual"), name + ".output.LayerNorm", 1e-12);
}

// The halves of the last dimension, turned against each other by an angle for each place (Su et al. 2021).
int Rotary(NetworkBuilder& b, int x, int cosine, int sine, const std::string& name) {
  const int64_t size = b.Extent(x, -1);
  const int first = Slice(b, x, -1, {0, size / 2}, name + ".first"),
            second = Slice(b, x, -1, {size / 2, size}, name + ".second");
  const int turned = Concat(b, {b.Node("neg", {second}, {}, name + ".negative"), first}, -1, name + ".turned");
  const int straight = b.Node("mul", {x, cosine}, {}, name + ".cos");
  return b.Node("add", {straight, b.Node("mul", {turned, sine}, {}, name + ".sin")}, {}, name);
}

// Cosines or sines, length x size, of the angles of tokens from `start` on.
Array RotaryTable(int64_t start, int64_t length, int64_t size, double (*function)(double)) {
  Array table(DType::kFloat32, {length, size});
  for (int64_t place = 0; place < length; ++place) {
    for (int64_t i = 0; i < size; ++i) {
      const double frequency =
          std::pow(10000.0, -2.0 * static_cast<double>(i % (size / 2)) / static_cast<double>(size));
      table.set(place * size + i, function(static_cast<double>(start + place) * frequency));
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<Network> BuildAttention(const std::string& name, const BuiltinArgs& args) {
  const int64_t heads = args.at("heads"), groups = args.at("kv_heads") > 0 ? args.at("kv_heads") : heads;
  const int64_t queries = args.at("queries"), keys = args.at("keys") > 0 ? args.at("keys") : queries;
  const int64_t size = args.at("size");
  if (heads % groups != 0)
    return absl::InvalidArgumentError(absl::StrCat("option 'kv_heads' of network '", name, "' cannot be ", groups,
                                                   ": it must divide 'heads', which is ", heads));
  if (args.at("causal") && keys < queries)
    return absl::InvalidArgumentError(absl::StrCat("option 'keys' of network '", name, "' cannot be ", keys,
                                                   ": with causal=1 there are at least as many as queries, ", queries));
  NetworkBuilder b = BeginNetwork(name, args);
  AttentionArgs attention;
  attention.q = b.Input("q", {1, heads, queries, size});
  attention.k = b.Input("k", {1, groups, keys, size});
  attention.v = b.Input("v", {1, groups, keys, size});
  attention.scale = ScaleOf(size);
  if (args.at("causal")) attention.bias = CausalBias(b, queries, keys - queries, "causal_bias");
  return b.Finish(Attend(b, attention, "attention"));
}

absl::StatusOr<Network> BuildLayerNorm(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  return b.Finish(LayerNorm(b, b.Input("data", {1, args.at("rows"), args.at("columns")}), "norm"));
}

// BERT (Devlin et al. 2018), the base size.
absl::StatusOr<Network> BuildBert(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckDivides(name, args, "heads", "hidden"));
  NetworkBuilder b = BeginNetwork(name, args);
  const int64_t length = args.at("seq"), hidden = args.at("hidden");
  const int ids = TokenInput(b, "input_ids", length), mask = TokenInput(b, "attention_mask", length);
  const int types = TokenInput(b, "token_type_ids", length);
  const int words = Embedding(b, ids, args.at("vocab"), hidden, "embeddings.word_embeddings");
  const int kinds = Embedding(b, types, 2, hidden, "embeddings.token_type_embeddings");
  int x = b.Node("add", {words, kinds}, {}, "embeddings.sum");
  const int places = PositionRows(b, 0, length, hidden, "embeddings.position_embeddings");
  x = LayerNorm(b, b.Node("add", {x, places}, {}, "embeddings.placed"), "embeddings.LayerNorm", 1e-12);
  const int bias = MaskBias(b, mask, *args.options);
  for (int64_t layer = 0; layer < args.at("layers"); ++layer)
    x = BertLayer(b, x, bias, args, absl::StrCat("encoder.layer.", layer));
  const int first = Reshape(b, Slice(b, x, 1, {0, 1}, "pooler.first"), {0, hidden}, "pooler.token");
  const int pooled = b.Node("tanh", {Linear(b, first, hidden, "pooler.dense")}, {}, "pooler");
  return b.Finish({{"last_hidden_state", x}, {"pooler_output", pooled}});
}

// GPT-2 (Radford et al. 2019), the smallest size. The last product is by the embedding's weights.
absl::StatusOr<Network> BuildGpt2(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckDivides(name, args, "heads", "hidden"));
  NetworkBuilder b = BeginNetwork(name, args);
  const int64_t hidden = args.at("hidden"), heads = args.at("heads");
  Decoder decoder(b, args, heads, hidden / heads);
  const int words = b.Constant("wte.weight", {args.at("vocab"), hidden}, -1, 1);
  int x = b.Node("gather", {words, decoder.ids()}, {{"axis", int64_t{0}}}, "wte");
  x = b.Node("add", {x, PositionRows(b, decoder.past(), decoder.length(), hidden, "wpe")}, {}, "embedded");
  for (int64_t layer = 0; layer < args.at("layers"); ++layer) {
    const std::string block = absl::StrCat("h.", layer);
    const int all = Linear(b, LayerNorm(b, x, block + ".ln_1"), 3 * hidden, block + ".attn.c_attn");
    const auto part = [&](int64_t which, const std::string& role) {
      return SplitHeads(b, Slice(b, all, -1, {which * hidden, (which + 1) * hidden}, block + role), heads,
                        block + role);
    };
    AttentionArgs attention;
    attention.q = part(0, ".attn.query");
    attention.k = part(1, ".attn.key");
    attention.v = part(2, ".attn.value");
    attention.scale = ScaleOf(hidden / heads);
    int y = Linear(b, decoder.Attention(layer, attention, block + ".attn"), hidden, block + ".attn.c_proj");
    x = b.Node("add", {y, x}, {}, block + ".attn.residual");
    y = Linear(b, LayerNorm(b, x, block + ".ln_2"), args.at("intermediate"), block + ".mlp.c_fc");
    y = Linear(b, b.Node("gelu_tanh", {y}, {}, block + ".mlp.act"), hidden, block + ".mlp.c_proj");
    x = b.Node("add", {y, x}, {}, block + ".mlp.residual");
  }
  x = LayerNorm(b, x, "ln_f");
  return decoder.Finish(b.Node("matmul", {x, Transpose(b, words, {1, 0}, "lm_head.weight")}, {}, "lm_head"));
}

// LLaMA (Touvron et al. 2023) with grouped queries, of the size of llama2.c's stories42M.
absl::StatusOr<Network> BuildLlama(const std::string& name, const BuiltinArgs& args) {
  RETURN_IF_ERROR(CheckDivides(name, args, "heads", "hidden"));
  RETURN_IF_ERROR(CheckDivides(name, args, "kv_heads", "heads"));
  const int64_t hidden = args.at("hidden"), heads = args.at("heads"), groups = args.at("kv_heads"),
                size = hidden / heads;
  if (size % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("option 'heads' of network '", name, "' cannot be ", heads,
                                                   ": with 'hidden' ", hidden, " a head has ", size,
                                                   " elements, an odd number, which a rotary embedding cannot halve"));
  }
  NetworkBuilder b = BeginNetwork(name, args);
  Decoder decoder(b, args, groups, size);
  const int cosine = b.Constant("rotary.cos", RotaryTable(decoder.past(), decoder.length(), size, std::cos));
  const int sine = b.Constant("rotary.sin", RotaryTable(decoder.past(), decoder.length(), size, std::sin));
  int x = Embedding(b, decoder.ids(), args.at("vocab"), hidden, "embed_tokens");
  for (int64_t layer = 0; layer < args.at("layers"); ++layer) {
    const std::string block = absl::StrCat("layers.", layer), attn = block + ".self_attn", mlp = block + ".mlp";
    int y = RmsNorm(b, x, block + ".input_layernorm");
    const auto projection = [&](int64_t count, const std::string& which) {
      return SplitHeads(b, Linear(b, y, count * size, attn + which, {.bias = false}), count, attn + which);
    };
    AttentionArgs attention;
    attention.q = Rotary(b, projection(heads, ".q_proj"), cosine, sine, attn + ".q_rotary");
    attention.k = Rotary(b, projection(groups, ".k_proj"), cosine, sine, attn + ".k_rotary");
    attention.v = projection(groups, ".v_proj");
    attention.scale = ScaleOf(size);
    y = Linear(b, decoder.Attention(layer, attention, attn), hidden, attn + ".o_proj", {.bias = false});
    x = b.Node("add", {x, y}, {}, attn + ".residual");
    y = RmsNorm(b, x, block + ".post_attention_layernorm");
    const int gate = Silu(b, Linear(b, y, args.at("intermediate"), mlp + ".gate_proj", {.bias = false}), mlp + ".act");
    const int up = Linear(b, y, args.at("intermediate"), mlp + ".up_proj", {.bias = false});
    y = Linear(b, b.Node("mul", {gate, up}, {}, mlp + ".gated"), hidden, mlp + ".down_proj", {.bias = false});
    x = b.Node("add", {x, y}, {}, mlp + ".residual");
  }
  return decoder.Finish(Linear(b, RmsNorm(b, x, "norm"), args.at("vocab"), "lm_head", {.bias = false}));
}

}  // namespace diapason
