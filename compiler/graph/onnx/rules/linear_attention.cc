// Attention whose cost grows linearly: a state that each step decays, corrects and writes to (opset 27), and the short
// causal convolution that stands in front of it.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

constexpr int64_t kMostPositions = 1024;

// Steps in front of the sequence are those of the last call, or zeros.
absl::Status CausalConvWithState(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), w = c.Input(1);
  if (RankOf(x) != 3 || RankOf(w) != 3 || w->type.shape[1] != 1 || w->type.shape[0] != x->type.shape[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", w->type.ToString(), " do not fit ", x->type.ToString(),
                     ": channels x 1 x taps and batch x channels x length are supported"));
  }
  const int64_t before = w->type.shape[2] - 1;
  ImportValue padded = x;
  if (node.HasInput(3)) {
    padded = before > 0 ? c.Concat({c.Input(3), x}, 2) : x;
  } else if (before > 0) {
    padded = c.Op("pad", {x}, {{"pads", Ints{0, 0, before, 0, 0, 0}}});
  }
  std::vector<ImportValue> inputs = {c.Unsqueeze(padded, {2}), c.Unsqueeze(w, {2})};
  if (node.HasInput(2)) inputs.push_back(c.Input(2));
  ImportValue y = c.Squeeze(c.Op("conv2d", inputs, {{"group", x->type.shape[1]}}), {2});
  const std::string activation = node.String("activation", "none");
  if (activation == "silu" || activation == "swish") {
    y = c.Op("swish", {y});
  } else if (activation != "none") {
    return absl::InvalidArgumentError(absl::StrCat("activation must be none, silu or swish, not '", activation, "'"));
  }
  if (node.IsRead(1)) {
    const int64_t length = padded->type.shape.back();
    if (before == 0) return absl::InvalidArgumentError("its state would be empty, which is not supported");
    c.Set(1, c.Slice(padded, 2, length - before, length));
  }
  return c.Finish(y);
}

struct Recurrence {
  int64_t heads = 1, groups = 1;  // of queries; of keys, values and states
  int64_t batch = 1, steps = 1, key = 1, value = 1;
  double scale = 1;
  ImportValue q, k, v, decay, beta;  // batch x heads or groups x steps x size, float32
};

ImportValue HeadsOf(Composer& c, const ImportValue& x, int64_t heads) {
  const Ints& s = x->type.shape;
  if (!c.ok()) return x;
  if (s.size() != 3 || heads < 1 || s[2] % heads != 0) {
    c.Fail(absl::InvalidArgumentError(absl::StrCat(x->type.ToString(), " cannot be split into ", heads, " heads")));
    return x;
  }
  return c.Cast(c.Transpose(c.Reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3}), DType::kFloat32);
}

absl::StatusOr<Recurrence> RecurrenceOf(NodeImporter& node, Composer& c) {
  Recurrence r;
  r.heads = node.Int("q_num_heads", 0);
  r.groups = node.Int("kv_num_heads", 0);
  const std::string rule = node.String("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") {
    return absl::InvalidArgumentError(
        absl::StrCat("update_rule must be linear, gated, delta or gated_delta, not '", rule, "'"));
  }
  if (gated != node.HasInput(4) || delta != node.HasInput(5)) {
    return absl::InvalidArgumentError(
        absl::StrCat("update_rule ", rule, " does not fit the inputs decay and beta that it has or lacks"));
  }
  if (r.groups < 1 || r.heads % std::max<int64_t>(r.groups, 1) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(r.heads, " heads of queries and ", r.groups, " of keys do not fit together"));
  }
  r.q = HeadsOf(c, c.Input(0), r.heads);
  r.k = HeadsOf(c, c.Input(1), r.groups);
  r.v = HeadsOf(c, c.Input(2), r.groups);
  if (gated) r.decay = HeadsOf(c, c.Input(4), r.groups);
  if (delta) {
    ImportValue beta = c.Input(5);
    r.beta = HeadsOf(c, beta, RankOf(beta) == 3 && beta->type.shape[2] == 1 ? 1 : r.groups);
  }
  RETURN_IF_ERROR(c.status());
  r.batch = r.q->type.shape[0];
  r.steps = r.q->type.shape[2];
  r.key = r.q->type.shape[3];
  r.value = r.v->type.shape[3];
  const double scale = node.Float("scale", 0);
  r.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(r.key));
  if (r.k->type.shape != Ints{r.batch, r.groups, r.steps, r.key}) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys of ", c.Input(1)->type.ToString(), " do not fit queries of ", c.Input(0)->type.ToString()));
  }
  if (r.steps > kMostPositions) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", r.steps, " steps, but at most ", kMostPositions,
                                                   " are unrolled: shorten the sequence"));
  }
  return r;
}

// One step: the state is batch x groups x key x value; gives batch x heads x 1 x value.
ImportValue StepOf(Composer& c, const Recurrence& r, int64_t t, ImportValue& state) {
  const auto at = [&](const ImportValue& x) { return c.Slice(x, 2, t, t + 1); };
  ImportValue k = c.Transpose(at(r.k), {0, 1, 3, 2}), v = at(r.v);
  if (r.decay) state = c.Mul(state, c.Transpose(c.Op("exp", {at(r.decay)}), {0, 1, 3, 2}));
  if (r.beta) v = c.Mul(at(r.beta), c.Sub(v, c.Matmul(at(r.k), state)));
  state = c.Add(state, c.Mul(k, v));
  ImportValue q = c.Reshape(at(r.q), {r.batch, r.groups, r.heads / r.groups, r.key});
  ImportValue read = c.Mul(c.Matmul(q, state), c.Scalar(r.scale, q));
  return c.Reshape(read, {r.batch, r.heads, 1, r.value});
}

absl::Status LinearAttention(NodeImporter& node) {
  Composer c(node);
  node.Ignore({"chunk_size"});  // how it may be computed
  ASSIGN_OR_RETURN(Recurrence r, RecurrenceOf(node, c));
  const Ints shape = {r.batch, r.groups, r.key, r.value};
  const DType type = c.Input(0)->type.dtype, kept = node.HasInput(3) ? c.Input(3)->type.dtype : type;
  const TensorType zeros{DType::kFloat32, shape};
  if (!node.HasInput(3) && (r.key > 1 << 16 || r.value > 1 << 16 || r.groups > 1 << 16 || r.batch > 1 << 14 ||
                            !node.SpendConstantBytes(4 * zeros.elements()))) {
    return absl::InvalidArgumentError("its state is too large");
  }
  ImportValue state =
      node.HasInput(3) ? c.Cast(c.Input(3), DType::kFloat32) : c.Constant(Array(DType::kFloat32, shape));
  if (state->type.shape != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("a state of ", state->type.ToString(), " does not fit its keys and values"));
  }
  std::vector<ImportValue> outputs;
  for (int64_t t = 0; t < r.steps && c.ok(); ++t) outputs.push_back(StepOf(c, r, t, state));
  RETURN_IF_ERROR(c.status());
  if (node.IsRead(1)) c.Set(1, c.Cast(state, kept));
  ImportValue y = c.Transpose(c.Concat(outputs, 2), {0, 2, 1, 3});
  return c.Finish(c.Cast(c.Reshape(y, {r.batch, r.steps, r.heads * r.value}), type));
}

}  // namespace

std::vector<OnnxRule> LinearAttentions() {
  return {{"CausalConvWithState", CausalConvWithState}, {"LinearAttention", LinearAttention}};
}

}  // namespace diapason::onnx_rules
