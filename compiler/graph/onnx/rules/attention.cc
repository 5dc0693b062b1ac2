// Attention: scores of queries and keys, a softmax over the keys, a weighted sum of values. ONNX's operator, those of
// ONNX Runtime, and the rotary embedding of queries and keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/quantized.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/tensor_proto.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// What is attended to. Queries are batch x heads x queries x size; keys and values are batch x groups x keys x size,
// where groups divide heads.
struct Heads {
  ImportValue q, k, v;
  double scale = 1, softcap = 0;
  ImportValue bias = nullptr;  // added to the scores; null: none
  bool may_mask_rows = false;  // a row of the bias may be -infinity throughout: then its results are 0
  ImportValue sink = nullptr;  // of each head: a score that takes its share of the softmax and has no value; null: none
  std::optional<DType> precision = std::nullopt;  // of the softmax

  int64_t batch() const { return q->type.shape[0]; }
  int64_t heads() const { return q->type.shape[1]; }
  int64_t queries() const { return q->type.shape[2]; }
  int64_t groups() const { return k->type.shape[1]; }
  int64_t keys() const { return k->type.shape[2]; }
};

// What a node may hand out besides the result.
struct Scores {
  ImportValue raw, capped, biased, weights;
};

absl::Status CheckHeads(const Heads& h) {
  auto fits = [&] {
    for (const ImportValue& x : {h.q, h.k, h.v}) {
      if (RankOf(x) != 4 || x->type.shape[0] != h.q->type.shape[0]) return false;
    }
    const Ints &q = h.q->type.shape, &k = h.k->type.shape, &v = h.v->type.shape;
    return k[1] == v[1] && k[2] == v[2] && k[3] == q[3] && q[1] % k[1] == 0;
  };
  if (fits()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("queries of ", h.q->type.ToString(), ", keys of ",
                                                 h.k->type.ToString(), " and values of ", h.v->type.ToString(),
                                                 " (batch x heads x length x size) do not fit together"));
}

// A product over groups: heads of one group share its keys or values.
ImportValue Grouped(Composer& c, const Heads& h, const ImportValue& a, const ImportValue& b) {
  if (h.heads() == h.groups()) return c.Matmul(a, b);
  const Ints &x = a->type.shape, &y = b->type.shape;
  ImportValue apart = c.Reshape(a, {x[0], h.groups(), h.heads() / h.groups(), x[2], x[3]});
  ImportValue product = c.Matmul(apart, c.Reshape(b, {y[0], y[1], 1, y[2], y[3]}));
  return c.Reshape(product, {x[0], x[1], x[2], y[3]});
}

ImportValue Attend(Composer& c, const Heads& h, Scores* scores = nullptr) {
  if (absl::Status status = CheckHeads(h); !status.ok()) c.Fail(status);
  if (!c.ok()) return h.q;
  Scores s;
  s.raw = Grouped(c, h, h.q, c.Transpose(h.k, {0, 1, 3, 2}));
  if (h.scale != 1) s.raw = c.Mul(s.raw, c.Scalar(h.scale, s.raw));
  s.capped = s.raw;
  if (h.softcap > 0) {
    ImportValue cap = c.Scalar(h.softcap, s.raw);
    s.capped = c.Mul(c.Op("tanh", {c.Div(s.raw, cap)}), cap);
  }
  s.biased = h.bias ? c.Add(s.capped, h.bias) : s.capped;
  DType type = s.biased->type.dtype;
  ImportValue all = s.biased;
  if (h.sink) {
    ImportValue sink = c.Expand(c.Reshape(h.sink, {1, h.heads(), 1, 1}), {h.batch(), h.heads(), h.queries(), 1});
    all = c.Concat({all, sink}, 3);
  }
  ImportValue weights = c.Op("softmax", {c.Cast(all, h.precision.value_or(type))}, {{"axis", int64_t{-1}}});
  if (h.sink) weights = c.Slice(weights, 3, 0, h.keys());
  s.weights = c.Cast(weights, type);
  if (h.bias && h.may_mask_rows) {
    ImportValue top = c.Op("reduce_max", {h.bias}, {{"axes", Ints{-1}}, {"keepdims", int64_t{1}}});
    s.weights = c.Op("where", {c.Op("equal", {top, c.Scalar(kMinusInfinity, top)}), c.Scalar(0, s.weights), s.weights});
  }
  if (scores) *scores = s;
  return Grouped(c, h, s.weights, h.v);
}

// batch x length x (heads * size) -> batch x heads x length x size, and back.
ImportValue SplitHeads(Composer& c, const ImportValue& x, int64_t heads) {
  if (!c.ok()) return x;
  if (RankOf(x) != 3 || heads < 1 || x->type.shape[2] % heads != 0) {
    c.Fail(absl::InvalidArgumentError(absl::StrCat(x->type.ToString(), " cannot be split into ", heads, " heads")));
    return x;
  }
  const Ints& s = x->type.shape;
  return c.Transpose(c.Reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

ImportValue JoinHeads(Composer& c, const ImportValue& x) {
  if (!c.ok()) return x;
  const Ints& s = x->type.shape;
  return c.Reshape(c.Transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

ImportValue Sum(Composer& c, const ImportValue& a, const ImportValue& b) { return !a ? b : !b ? a : c.Add(a, b); }

// 0 where `allowed`, else -infinity.
ImportValue BiasOf(Composer& c, const ImportValue& allowed, DType type) {
  return c.Op("where", {allowed, c.Scalar(0, type), c.Scalar(kMinusInfinity, type)});
}

// Which keys a query may see by its place: those up to `right` behind and `left` in front of it; -1: any.
struct Band {
  int64_t left = -1, right = -1;
  bool any() const { return left >= 0 || right >= 0; }
};

struct ScoreType {
  int64_t queries, keys;
  DType dtype;
};

// The places of queries are `offset` + 0, 1, ...
ImportValue BandBias(Composer& c, const Band& band, const ScoreType& scores, int64_t offset) {
  const auto& [queries, keys, type] = scores;
  constexpr int64_t kMost = int64_t{1} << 28;
  if (queries > kMost / std::max<int64_t>(keys, 1)) {
    c.Fail(
        absl::InvalidArgumentError(absl::StrCat("a mask of ", queries, " queries and ", keys, " keys is too large")));
    return c.Scalar(0, type);
  }
  Array bias(type, {queries, keys});
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      int64_t ahead = j - (i + offset);
      bool seen = (band.right < 0 || ahead <= band.right) && (band.left < 0 || -ahead <= band.left);
      if (!seen) bias.set(i * keys + j, kMinusInfinity);
    }
  }
  return c.Constant(std::move(bias));
}

ImportValue Counting(Composer& c, int64_t extent, const Ints& shape) {
  if (extent > int64_t{1} << 28) {
    c.Fail(absl::InvalidArgumentError(absl::StrCat("a sequence of ", extent, " is too long")));
    return c.Scalar(0, DType::kInt64);
  }
  Array array(DType::kInt64, shape);
  for (int64_t i = 0; i < extent; ++i) array.set_int(i, i);
  return c.Constant(std::move(array));
}

// The same where the offset is a tensor of batch elements.
ImportValue BandBias(Composer& c, const Band& band, const ScoreType& scores, const ImportValue& offset) {
  const auto& [queries, keys, type] = scores;
  ImportValue first = c.Reshape(offset, {offset->type.elements(), 1, 1, 1});
  ImportValue place = c.Add(Counting(c, queries, {queries, 1}), first);
  ImportValue ahead = c.Sub(Counting(c, keys, {keys}), place), bias;
  if (band.right >= 0) {
    bias = BiasOf(c, c.Op("less_equal", {ahead, c.Scalar(static_cast<double>(band.right), ahead)}), type);
  }
  if (band.left >= 0) {
    ImportValue seen = c.Op("less_equal", {c.Scalar(static_cast<double>(-band.left), ahead), ahead});
    bias = Sum(c, bias, BiasOf(c, seen, type));
  }
  return bias;
}

// A mask of truth values or of numbers to add, which may be too short: further keys are masked.
ImportValue MaskBias(Composer& c, ImportValue mask, int64_t keys, DType type) {
  int64_t rank = RankOf(mask);
  if (rank < 1 || mask->type.shape.back() > keys) {
    c.Fail(
        absl::InvalidArgumentError(absl::StrCat("a mask of ", mask->type.ToString(), " does not fit ", keys, " keys")));
    return mask;
  }
  if (mask->type.dtype == DType::kBool) mask = BiasOf(c, mask, type);
  int64_t missing = keys - mask->type.shape.back();
  if (missing > 0 && mask->type.shape.back() > 0) {
    Ints pads(2 * rank, 0);
    pads.back() = missing;
    mask = c.Op("pad", {mask}, {{"pads", pads}, {"value", kMinusInfinity}});
  }
  return mask;
}

// How many keys a cache of 4 dimensions holds.
int64_t PastLength(NodeImporter& node, Composer& c, int input) {
  if (!node.HasInput(input)) return 0;
  ImportValue past = c.Input(input);
  if (RankOf(past) == 4) return past->type.shape[2];
  c.Fail(absl::InvalidArgumentError(
      absl::StrCat("input ", input, " (the cache) is ", past->type.ToString(), ": 4 dimensions are supported")));
  return 0;
}

// The cache of earlier keys or values in front of new ones.
ImportValue WithPast(NodeImporter& node, Composer& c, int input, const ImportValue& x) {
  return node.HasInput(input) ? c.Concat({c.Input(input), x}, 2) : x;
}

absl::Status ReadAttentionBias(NodeImporter& node, Composer& c, Heads& h, int64_t past) {
  DType type = h.q->type.dtype;
  Band band{node.Int("left_window_size", -1), node.Int("right_window_size", -1)};
  if (band.left < -1 || band.right < -1) {
    return absl::InvalidArgumentError("left_window_size and right_window_size must be -1 or more");
  }
  if (node.Int("is_causal", 0) != 0) band.right = band.right < 0 ? 0 : std::min<int64_t>(band.right, 0);
  if (node.HasInput(3)) {
    h.bias = MaskBias(c, c.Input(3), h.keys(), type);
    h.may_mask_rows = true;
  }
  if (node.HasInput(6)) {  // how many keys of each batch element there are
    ImportValue count = c.Cast(c.Input(6), DType::kInt64);
    ImportValue inside =
        c.Op("less", {Counting(c, h.keys(), {h.keys()}), c.Reshape(count, {count->type.elements(), 1, 1, 1})});
    h.bias = Sum(c, h.bias, BiasOf(c, inside, type));
    if (band.any()) {
      ImportValue offset = c.Sub(count, c.Scalar(static_cast<double>(h.queries()), count));
      h.bias = Sum(c, h.bias, BandBias(c, band, {h.queries(), h.keys(), type}, offset));
    }
    h.may_mask_rows = true;
  } else if (band.any()) {
    h.bias = Sum(c, h.bias, BandBias(c, band, {h.queries(), h.keys(), type}, past));
    // Each query sees the key at its own place.
    h.may_mask_rows = h.may_mask_rows || past + h.queries() > h.keys();
  }
  return c.status();
}

absl::Status Attention(NodeImporter& node) {
  Composer c(node);
  Heads h{c.Input(0), c.Input(1), c.Input(2)};
  bool flat = RankOf(h.q) == 3;
  int64_t heads = node.Int("q_num_heads", 0), groups = node.Int("kv_num_heads", 0);
  if (flat) {
    h.q = SplitHeads(c, h.q, heads);
    h.k = SplitHeads(c, h.k, groups);
    h.v = SplitHeads(c, h.v, groups);
  }
  int64_t past = PastLength(node, c, 4);
  h.k = WithPast(node, c, 4, h.k);
  h.v = WithPast(node, c, 5, h.v);
  RETURN_IF_ERROR(c.status());
  RETURN_IF_ERROR(CheckHeads(h));
  h.scale = node.Float("scale", 1 / std::sqrt(static_cast<double>(h.q->type.shape[3])));
  h.softcap = node.Float("softcap", 0);
  if (int64_t precision = node.Int("softmax_precision", 0); precision != 0) {
    ASSIGN_OR_RETURN(h.precision, DTypeOfOnnx(static_cast<int>(precision)));
  }
  RETURN_IF_ERROR(ReadAttentionBias(node, c, h, past));
  Scores s;
  ImportValue y = Attend(c, h, &s);
  int64_t mode = node.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) return absl::InvalidArgumentError(absl::StrCat("qk_matmul_output_mode cannot be ", mode));
  // Opset 25 made the order of the first two that in which they are computed.
  if (node.IsRead(3)) c.Set(3, mode == 0 ? s.raw : mode == 1 ? s.capped : mode == 2 ? s.biased : s.weights);
  if (node.IsRead(1)) c.Set(1, h.k);
  if (node.IsRead(2)) c.Set(2, h.v);
  return c.Finish(flat ? JoinHeads(c, y) : y);
}

// Key lengths of each batch element, or which keys there are (of all queries, or of each), as a bias.
ImportValue KeyMask(Composer& c, const ImportValue& mask, const Heads& h, double masked) {
  DType type = h.q->type.dtype;
  ImportValue seen;
  const Ints& s = mask->type.shape;
  if (s == Ints{h.batch()}) {
    ImportValue length = c.Reshape(mask, {h.batch(), 1, 1, 1});
    seen = c.Op("less", {c.Cast(Counting(c, h.keys(), {h.keys()}), length->type.dtype), length});
  } else if (s == Ints{h.batch(), h.keys()}) {
    seen = c.Cast(c.Reshape(mask, {h.batch(), 1, 1, h.keys()}), DType::kBool);
  } else if (s == Ints{h.batch(), h.queries(), h.keys()}) {
    seen = c.Cast(c.Reshape(mask, {h.batch(), 1, h.queries(), h.keys()}), DType::kBool);
  } else {
    c.Fail(absl::InvalidArgumentError(absl::StrCat("a mask of ", mask->type.ToString(),
                                                   " is not supported: one of batch, batch x keys or ",
                                                   "batch x queries x keys is")));
    return mask;
  }
  return c.Op("where", {seen, c.Scalar(0, type), c.Scalar(masked, type)});
}

// Numbers of inputs: that which says what keys there are, and that which is added to the scores (-1: none is).
struct MaskInputs {
  int mask, bias;
};

absl::Status FinishHeads(NodeImporter& node, Composer& c, Heads& h, const MaskInputs& inputs, int64_t past) {
  double masked = node.Float("mask_filter_value", -10000);
  RETURN_IF_ERROR(c.status());
  RETURN_IF_ERROR(CheckHeads(h));
  double scale = node.Float("scale", 0);
  h.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(h.q->type.shape[3]));
  if (node.HasInput(inputs.mask)) h.bias = KeyMask(c, c.Input(inputs.mask), h, masked);
  if (inputs.bias >= 0 && node.HasInput(inputs.bias)) h.bias = Sum(c, h.bias, c.Input(inputs.bias));
  if (node.Int("unidirectional", 0) != 0) {
    h.bias = Sum(c, h.bias, BandBias(c, {-1, 0}, {h.queries(), h.keys(), h.q->type.dtype}, past));
  }
  return c.Finish(JoinHeads(c, Attend(c, h)));
}

// Numbers of inputs of an attention with the projections in front; bias -1: it has none.
struct ProjectedInputs {
  int mask, past, bias;
};

// `all` is batch x length x queries, keys and values side by side. The cache is one tensor of keys and values.
absl::Status FinishProjected(NodeImporter& node, Composer& c, const ImportValue& all, const ProjectedInputs& inputs) {
  const int64_t heads = node.Int("num_heads", 0);
  for (const char* name : {"do_rotary", "past_present_share_buffer"}) {
    if (node.Int(name, 0) != 0) return absl::InvalidArgumentError(absl::StrCat(name, "=1 is not supported"));
  }
  node.Ignore({"rotary_embedding_dim"});
  RETURN_IF_ERROR(c.status());
  const int64_t columns = all->type.shape.back();
  Ints sizes = node.Ints("qkv_hidden_sizes", {columns / 3, columns / 3, columns / 3});
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != columns) {
    return absl::InvalidArgumentError(absl::StrCat("qkv_hidden_sizes do not fit weights of ", columns, " columns"));
  }
  auto part = [&](int64_t from, int64_t size) { return SplitHeads(c, c.Slice(all, 2, from, from + size), heads); };
  Heads h{part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0] + sizes[1], sizes[2])};
  int64_t past = 0;
  if (node.HasInput(inputs.past)) {
    ImportValue cache = c.Input(inputs.past);
    if (RankOf(cache) != 5) return absl::InvalidArgumentError("its cache must have 5 dimensions");
    past = cache->type.shape[3];
    h.k = c.Concat({c.Squeeze(c.Slice(cache, 0, 0, 1), {0}), h.k}, 2);
    h.v = c.Concat({c.Squeeze(c.Slice(cache, 0, 1, 2), {0}), h.v}, 2);
  }
  if (node.IsRead(1)) c.Set(1, c.Concat({c.Unsqueeze(h.k, {0}), c.Unsqueeze(h.v, {0})}, 0));
  return FinishHeads(node, c, h, {.mask = inputs.mask, .bias = inputs.bias}, past);
}

// Of ONNX Runtime.
absl::Status FusedAttention(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), w = c.Input(1);
  if (RankOf(x) != 3 || RankOf(w) != 2)
    return absl::InvalidArgumentError("its input must have 3 dimensions, its weights 2");
  ImportValue all = c.Matmul(x, w);
  if (node.HasInput(2)) all = c.Add(all, c.Input(2));
  return FinishProjected(node, c, all, {.mask = 3, .past = 4, .bias = 5});
}

// The same with projections of 8-bit integers.
absl::Status QuantizedAttention(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), w = c.Input(1), scale = c.Input(3), scales = c.Input(4);
  if (RankOf(x) != 3 || RankOf(w) != 2)
    return absl::InvalidArgumentError("its input must have 3 dimensions, its weights 2");
  const auto zero = [&](int input) { return node.HasInput(input) ? c.Input(input) : nullptr; };
  ImportValue all = c.Matmul(Centred(c, x, zero(6), -1), Centred(c, w, zero(7), -1));
  if (scales->type.elements() == 1) scales = c.Reshape(scales, {});
  all = c.Mul(c.Cast(all, scale->type.dtype), c.Mul(c.Reshape(scale, {}), scales));
  if (node.HasInput(2)) all = c.Add(all, c.Input(2));
  return FinishProjected(node, c, all, {.mask = 5, .past = 8, .bias = -1});
}

struct Projections {
  ImportValue q, k, v;
};

// Queries, keys and values as batch x length x (heads * size). Some models have them in one tensor, or keys and values
// in one, of batch x length x heads x (3 or 2) x size.
absl::StatusOr<Projections> UnpackedProjections(NodeImporter& node, Composer& c, int64_t heads) {
  if (node.HasInput(1) && node.HasInput(2)) return Projections{c.Input(0), c.Input(1), c.Input(2)};
  const ImportValue packed = c.Input(node.HasInput(1) ? 1 : 0);
  const int64_t parts = node.HasInput(1) ? 2 : 3;
  RETURN_IF_ERROR(c.status());
  const Ints& s = packed->type.shape;
  if (RankOf(packed) != 5 || s[2] != heads || s[3] != parts || node.HasInput(2)) {
    return absl::InvalidArgumentError(absl::StrCat(
        parts == 3 ? "queries, keys and values" : "keys and values", " in one tensor of ", packed->type.ToString(),
        " are not supported: batch x length x ", heads, " x ", parts, " x size is"));
  }
  auto part = [&](int64_t i) { return c.Reshape(c.Slice(packed, 3, i, i + 1), {s[0], s[1], heads * s[4]}); };
  if (parts == 2) return Projections{c.Input(0), part(0), part(1)};
  return Projections{part(0), part(1), part(2)};
}

absl::Status MultiHeadAttention(NodeImporter& node) {
  Composer c(node);
  int64_t heads = node.Int("num_heads", 0);
  ASSIGN_OR_RETURN(Projections projections, UnpackedProjections(node, c, heads));
  auto& [q, k, v] = projections;
  if (node.HasInput(3) && c.ok()) {
    ImportValue bias = c.Input(3);
    int64_t at = 0;
    for (ImportValue* x : {&q, &k, &v}) {
      int64_t size = RankOf(*x) == 3   ? (*x)->type.shape[2]
                     : RankOf(*x) == 4 ? (*x)->type.shape[1] * (*x)->type.shape[3]
                                       : 0;
      if (RankOf(*x) == 3) *x = c.Add(*x, c.Slice(bias, 0, at, at + size));
      at += size;
    }
  }
  // Keys and values of cross attention may have their heads apart.
  Heads h{SplitHeads(c, q, heads), RankOf(k) == 4 ? k : SplitHeads(c, k, heads),
          RankOf(v) == 4 ? v : SplitHeads(c, v, heads)};
  int64_t past = PastLength(node, c, 6);
  h.k = WithPast(node, c, 6, h.k);
  h.v = WithPast(node, c, 7, h.v);
  if (node.IsRead(1)) c.Set(1, h.k);
  if (node.IsRead(2)) c.Set(2, h.v);
  return FinishHeads(node, c, h, {.mask = 4, .bias = 5}, past);
}

// Pairs of elements turned by an angle that depends on their place: x is batch x heads x length x size, the tables of
// cosines and sines are (batch x) length x rotated / 2.
ImportValue Rotated(Composer& c, const ImportValue& x, ImportValue cosine, ImportValue sine, bool interleaved) {
  const Ints& s = x->type.shape;
  if (RankOf(cosine) == 3) {
    cosine = c.Unsqueeze(cosine, {1});
    sine = c.Unsqueeze(sine, {1});
  }
  const int64_t half = cosine->type.shape.back(), rotated = 2 * half;
  ImportValue a, b;
  if (interleaved) {
    a = c.Slice(x, 3, 0, rotated, 2);
    b = c.Slice(x, 3, 1, rotated, 2);
  } else {
    a = c.Slice(x, 3, 0, half);
    b = c.Slice(x, 3, half, rotated);
  }
  ImportValue real = c.Sub(c.Mul(cosine, a), c.Mul(sine, b)), imaginary = c.Add(c.Mul(sine, a), c.Mul(cosine, b));
  ImportValue turned;
  if (interleaved) {
    turned = c.Concat({c.Unsqueeze(real, {4}), c.Unsqueeze(imaginary, {4})}, 4);
    turned = c.Reshape(turned, {s[0], s[1], s[2], rotated});
  } else {
    turned = c.Concat({real, imaginary}, 3);
  }
  return rotated == s[3] ? turned : c.Concat({turned, c.Slice(x, 3, rotated, s[3])}, 3);
}

struct RotaryInputs {
  int cosine, sine, places;
};

absl::Status ImportRotary(NodeImporter& node, const RotaryInputs& inputs) {
  Composer c(node);
  ImportValue x = c.Input(0), cosine = c.Input(inputs.cosine), sine = c.Input(inputs.sine);
  bool flat = RankOf(x) == 3;
  if (RankOf(cosine) < 1 || cosine->type.elements() == 0) return absl::InvalidArgumentError("its tables are empty");
  int64_t rotated = node.Int("rotary_embedding_dim", 0), heads = node.Int("num_heads", 0);
  // The tables have half of the size of a head where nothing else says what that is.
  if (flat && heads == 0 && rotated == 0) heads = x->type.shape[2] / (2 * cosine->type.shape.back());
  ImportValue apart = flat ? SplitHeads(c, x, heads) : x;
  RETURN_IF_ERROR(c.status());
  if (RankOf(apart) != 4)
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", x->type.ToString(), ": 3 or 4 dimensions are supported"));
  if (rotated == 0) rotated = apart->type.shape[3];
  if (node.HasInput(inputs.places)) {
    ImportValue places = c.Input(inputs.places);
    if (places->type.elements() == 1 && RankOf(places) < 2) {  // where the sequence starts
      ImportValue start = c.Reshape(c.Cast(places, DType::kInt64), {1});
      places = c.Add(start, Counting(c, apart->type.shape[2], {apart->type.shape[2]}));
    }
    cosine = c.Op("gather", {cosine, places}, {{"axis", int64_t{0}}});
    sine = c.Op("gather", {sine, places}, {{"axis", int64_t{0}}});
  }
  if (rotated % 2 != 0 || rotated < 2 || rotated > apart->type.shape[3] || cosine->type.shape.back() != rotated / 2 ||
      cosine->type.shape != sine->type.shape) {
    return absl::InvalidArgumentError(absl::StrCat("tables of ", cosine->type.ToString(), " and ",
                                                   sine->type.ToString(), " do not fit ", rotated, " of the ",
                                                   apart->type.shape[3], " elements of a head"));
  }
  ImportValue y = Rotated(c, apart, cosine, sine, node.Int("interleaved", 0) != 0);
  return c.Finish(flat ? JoinHeads(c, y) : y);
}

absl::Status RotaryEmbedding(NodeImporter& node) { return ImportRotary(node, {1, 2, 3}); }

// Of ONNX Runtime: the places come before the tables.
absl::Status FusedRotaryEmbedding(NodeImporter& node) {
  if (node.Int("is_packed_batching", 0) != 0)
    return absl::InvalidArgumentError("is_packed_batching=1 is not supported");
  if (node.Float("scale", 1) != 1) return absl::InvalidArgumentError("a scale is not supported");
  return ImportRotary(node, {2, 3, 1});
}

// How many keys there were before the new ones of a GroupQueryAttention: none, the same number in all batch elements,
// or as many as `each` (int64, batch) says when the network runs.
struct KeysBefore {
  int64_t all = 0;
  ImportValue each = nullptr;
};

// Total lengths are constants once dims have sizes: models compute them from the shape of a mask. Only how many keys of
// each sequence are padding is known when the network runs.
absl::StatusOr<KeysBefore> ReadKeysBefore(NodeImporter& node, Composer& c, const Heads& h) {
  ASSIGN_OR_RETURN(std::vector<int64_t> total, node.KnownInts(6, "the total length of sequences"));
  const int64_t length = h.queries();
  if (total.size() != 1 || total[0] < length || h.keys() != length) {
    return absl::InvalidArgumentError(
        absl::StrCat("its total length of sequences does not fit ", length, " queries and ", h.keys(), " new keys"));
  }
  ImportValue last = c.Input(5);
  RETURN_IF_ERROR(c.status());
  if (total[0] == length) return KeysBefore{};
  if (last->type.elements() != h.batch()) {
    return absl::InvalidArgumentError(
        absl::StrCat("lengths of ", last->type.ToString(), " do not fit a batch of ", h.batch()));
  }
  KeysBefore before{total[0] - length, c.Reshape(c.Cast(last, DType::kInt64), {h.batch()})};
  RETURN_IF_ERROR(c.status());
  bool full = before.each->value != nullptr;
  for (int64_t b = 0; full && b < h.batch(); ++b) full = before.each->value->int_at(b) == total[0] - 1;
  before.each = full ? nullptr : c.Sub(before.each, c.Scalar(static_cast<double>(length - 1), DType::kInt64));
  return before;
}

// The new keys or values in a cache behind those that were there; what is behind both stays. `past` is null where there
// is no cache.
ImportValue Cached(Composer& c, const ImportValue& past, const ImportValue& fresh, const KeysBefore& before) {
  if (!c.ok()) return fresh;
  const Ints& s = fresh->type.shape;
  const int64_t batch = s[0], length = s[2], old = past ? past->type.shape[2] : 0, end = before.all + length;
  if (!before.each) {
    std::vector<ImportValue> parts;
    if (before.all > 0) parts.push_back(c.Slice(past, 2, 0, before.all));
    parts.push_back(fresh);
    if (old > end) parts.push_back(c.Slice(past, 2, end, old));
    return parts.size() == 1 ? fresh : c.Concat(parts, 2);
  }
  const int64_t keys = std::max(old, end);
  ImportValue longer = past;
  if (keys > old) longer = c.Op("pad", {past}, {{"pads", Ints{0, 0, 0, 0, 0, 0, keys - old, 0}}, {"value", 0.0}});
  ImportValue place = c.Sub(Counting(c, keys, {keys, 1}), c.Reshape(before.each, {batch, 1, 1, 1}));
  ImportValue is_new = c.Op("and", {c.Op("less_equal", {c.Scalar(0, place), place}),
                                    c.Op("less", {place, c.Scalar(static_cast<double>(length), place)})});
  if (length == 1) return c.Op("where", {is_new, fresh, longer});
  ImportValue inside =
      c.Op("minimum", {c.Op("maximum", {place, c.Scalar(0, place)}), c.Scalar(static_cast<double>(length - 1), place)});
  std::vector<ImportValue> moved;
  for (int64_t b = 0; b < batch; ++b) {
    ImportValue from = c.Reshape(c.Slice(inside, 0, b, b + 1), {keys});
    moved.push_back(c.Op("gather", {c.Slice(fresh, 0, b, b + 1), from}, {{"axis", int64_t{2}}}));
  }
  return c.Op("where", {is_new, batch == 1 ? moved[0] : c.Concat(moved, 0), longer});
}

// Turns queries and new keys by their places.
absl::Status RotateNew(NodeImporter& node, Composer& c, Heads& h, const KeysBefore& before) {
  ImportValue cosine = c.Input(7), sine = c.Input(8);
  const bool interleaved = node.Int("rotary_interleaved", 0) != 0;
  RETURN_IF_ERROR(c.status());
  const int64_t length = h.queries(), size = h.q->type.shape[3];
  if (RankOf(cosine) != 2 || cosine->type.shape != sine->type.shape || 2 * cosine->type.shape[1] > size ||
      cosine->type.shape[0] < before.all + length) {
    return absl::InvalidArgumentError(absl::StrCat("tables of ", cosine->type.ToString(), " and ",
                                                   sine->type.ToString(), " do not fit ", before.all + length,
                                                   " places and heads of ", size, " elements"));
  }
  if (node.HasInput(9) || before.each) {
    ImportValue places =
        node.HasInput(9) ? c.Input(9) : c.Add(c.Reshape(before.each, {h.batch(), 1}), Counting(c, length, {length}));
    cosine = c.Op("gather", {cosine, places}, {{"axis", int64_t{0}}});
    sine = c.Op("gather", {sine, places}, {{"axis", int64_t{0}}});
  } else {
    cosine = c.Slice(cosine, 0, before.all, before.all + length);
    sine = c.Slice(sine, 0, before.all, before.all + length);
  }
  h.q = Rotated(c, h.q, cosine, sine, interleaved);
  h.k = Rotated(c, h.k, cosine, sine, interleaved);
  return c.status();
}

absl::StatusOr<Projections> GroupProjections(NodeImporter& node, Composer& c, int64_t heads, int64_t groups) {
  ImportValue q = c.Input(0);
  RETURN_IF_ERROR(c.status());
  if (node.HasInput(1)) return Projections{q, c.Input(1), c.Input(2)};
  const int64_t columns = RankOf(q) == 3 ? q->type.shape[2] : 0, all = heads + 2 * groups;
  if (columns == 0 || columns % all != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("queries, keys and values of ", q->type.ToString(), " cannot be split into ", all, " heads"));
  }
  const int64_t size = columns / all;
  auto part = [&](int64_t from, int64_t count) { return c.Slice(q, 2, from * size, (from + count) * size); };
  return Projections{part(0, heads), part(heads, groups), part(heads + groups, groups)};
}

absl::Status RefuseQuantizedCache(NodeImporter& node) {
  for (const char* name : {"k_quant_type", "v_quant_type"}) {
    if (const std::string type = node.String(name, "NONE"); type != "NONE")
      return absl::InvalidArgumentError(absl::StrCat(name, "=", type, " is not supported"));
  }
  for (const char* name : {"kv_cache_bit_width", "qk_output"}) {
    if (const int64_t value = node.Int(name, 0); value != 0)
      return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " is not supported"));
  }
  return absl::OkStatus();
}

// Of ONNX Runtime, as its builder of language models writes: causal attention with fewer heads of keys and values than
// of queries, rotated on the way, and a cache that may be longer than what it holds.
absl::Status GroupQueryAttention(NodeImporter& node) {
  Composer c(node);
  const int64_t heads = node.Int("num_heads", 0), groups = node.Int("kv_num_heads", 0);
  if (heads < 1 || groups < 1 || heads % groups != 0)
    return absl::InvalidArgumentError(absl::StrCat(heads, " heads cannot share ", groups, " of keys and values"));
  RETURN_IF_ERROR(RefuseQuantizedCache(node));
  ASSIGN_OR_RETURN(Projections projections, GroupProjections(node, c, heads, groups));
  Heads h{SplitHeads(c, projections.q, heads), SplitHeads(c, projections.k, groups),
          SplitHeads(c, projections.v, groups)};
  RETURN_IF_ERROR(c.status());
  RETURN_IF_ERROR(CheckHeads(h));
  ASSIGN_OR_RETURN(const KeysBefore before, ReadKeysBefore(node, c, h));
  const int64_t length = h.queries(), keys = before.all + length, past = PastLength(node, c, 3);
  RETURN_IF_ERROR(c.status());
  if (past < before.all) {
    return absl::InvalidArgumentError(
        absl::StrCat("its cache of ", past, " keys is too short for a total length of ", keys));
  }
  if (node.Int("do_rotary", 0) != 0) RETURN_IF_ERROR(RotateNew(node, c, h, before));
  const double scale = node.Float("scale", 0);
  h.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(h.q->type.shape[3]));
  h.softcap = node.Float("softcap", 0);
  h.k = Cached(c, node.HasInput(3) ? c.Input(3) : nullptr, h.k, before);
  h.v = Cached(c, node.HasInput(4) ? c.Input(4) : nullptr, h.v, before);
  if (node.IsRead(1)) c.Set(1, h.k);
  if (node.IsRead(2)) c.Set(2, h.v);
  RETURN_IF_ERROR(c.status());
  if (h.keys() > keys) {
    h.k = c.Slice(h.k, 2, 0, keys);
    h.v = c.Slice(h.v, 2, 0, keys);
  }
  const int64_t window = node.Int("local_window_size", -1);  // with the query's own key; -1: all keys
  if (window == 0 || window < -1)
    return absl::InvalidArgumentError(
        absl::StrCat("local_window_size=", window, " is not supported: -1 or more than 0 is"));
  const Band band{window < 0 ? -1 : window - 1, 0};
  const ScoreType scores{length, keys, h.q->type.dtype};
  if (before.each) {
    h.bias = BandBias(c, band, scores, before.each);
  } else if (length > 1 || (band.left >= 0 && band.left < keys)) {
    h.bias = BandBias(c, band, scores, before.all);
  }
  if (node.HasInput(10)) h.bias = Sum(c, h.bias, c.Input(10));
  if (node.Int("smooth_softmax", 0) == 1) h.sink = c.Expand(c.Scalar(0, h.q), {heads});
  if (node.HasInput(11)) h.sink = c.Input(11);
  return c.Finish(JoinHeads(c, Attend(c, h)));
}

}  // namespace

std::vector<OnnxRule> Attentions() {
  return {{"Attention", Attention},
          {"RotaryEmbedding", RotaryEmbedding},
          {"com.microsoft.Attention", FusedAttention},
          {"com.microsoft.QAttention", QuantizedAttention},
          {"com.microsoft.GroupQueryAttention", GroupQueryAttention},
          {"com.microsoft.MultiHeadAttention", MultiHeadAttention},
          {"com.microsoft.RotaryEmbedding", FusedRotaryEmbedding}};
}

}  // namespace diapason::onnx_rules
