// Normalisations: over layers, groups, instances, channels, and by a norm.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// A parameter of each channel, for a tensor with the channels in axis 1.
ImportValue OfChannels(Composer& c, const ImportValue& parameter, int64_t rank) {
  if (RankOf(parameter) != 1) {
    c.Fail(absl::InvalidArgumentError(absl::StrCat("a parameter is ", parameter->type.ToString(), ", not a list")));
  }
  Ints shape(rank - 1, 1);
  shape[0] = parameter->type.elements();
  return c.Reshape(parameter, shape);
}

constexpr double kEpsilon = 1e-5;  // of LayerNormalization and RMSNormalization, where the model gives none

ImportValue Normalized(Composer& c, const ImportValue& x, int64_t axis, double epsilon, bool centred) {
  return c.Op(centred ? "layer_norm" : "rms_norm", {x}, {{"axis", axis}, {"epsilon", epsilon}});
}

struct Statistics {
  int64_t axis = -1;
  bool centred = true;
  double epsilon = 0;
  int inverse_at = 2;  // which result 1 / standard deviation is
  DType type = DType::kFloat32;
};

// Further results: mean (1) and 1 / standard deviation, or, not centred, 1 / root mean square alone.
void SetStatistics(NodeImporter& node, Composer& c, const ImportValue& input, const Statistics& how) {
  const bool mean_read = how.centred && node.IsRead(1);
  if (!c.ok() || (!mean_read && !node.IsRead(how.inverse_at))) return;
  ImportValue x = c.Cast(input, how.type);
  Ints axes(RankOf(x) - how.axis);
  std::iota(axes.begin(), axes.end(), how.axis);
  Attributes over{{"axes", axes}, {"keepdims", int64_t{1}}};
  if (how.centred) {
    const ImportValue mean = c.Op("reduce_mean", {x}, over);
    x = c.Sub(x, mean);
    if (mean_read) c.Set(1, mean);
  }
  if (!node.IsRead(how.inverse_at)) return;
  const ImportValue square = c.Op("reduce_mean", {c.Mul(x, x)}, over);
  c.Set(how.inverse_at, c.Op("rsqrt", {c.Add(square, c.Scalar(how.epsilon, square))}));
}

// Parameters of a layer normalization, in the type of x. PyTorch's older exporter leaves those of a float16 model as
// they are where a mask of float32 has made x float32.
ImportValue Parameter(Composer& c, int input, const ImportValue& x) {
  ImportValue parameter = c.Input(input);
  return c.ok() && IsFloat(parameter->type.dtype) && IsFloat(x->type.dtype) ? c.Cast(parameter, x->type.dtype)
                                                                            : parameter;
}

absl::Status ImportLayerNorm(NodeImporter& node, bool centred) {
  Composer c(node);
  ImportValue x = c.Input(0), scale = Parameter(c, 1, x);
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(node.Int("axis", -1), x));
  double epsilon = node.Float("epsilon", kEpsilon);
  ImportValue y = c.Mul(Normalized(c, x, axis, epsilon, centred), scale);
  if (node.HasInput(2)) y = c.Add(y, Parameter(c, 2, x));
  const DType stash = node.Int("stash_type", 1) == 16 ? DType::kBfloat16 : DType::kFloat32;
  SetStatistics(node, c, x, {axis, centred, epsilon, centred ? 2 : 1, stash});
  return c.Finish(y);
}
absl::Status LayerNormalization(NodeImporter& node) { return ImportLayerNorm(node, true); }
absl::Status RmsNormalization(NodeImporter& node) { return ImportLayerNorm(node, false); }

// The sum of an input and a residual, normalised; results 1 and 2 are its statistics, result 3 is the sum.
absl::Status ImportSkip(NodeImporter& node, bool centred) {
  Composer c(node);
  ImportValue x = c.Add(c.Input(0), c.Input(1)), scale = c.Input(2);
  int bias = centred ? 4 : 3;
  if (node.HasInput(bias)) x = c.Add(x, c.Input(bias));
  const double epsilon = node.Float("epsilon", 1e-12);
  ImportValue y = c.Mul(Normalized(c, x, -1, epsilon, centred), scale);
  if (centred && node.HasInput(3)) y = c.Add(y, c.Input(3));
  SetStatistics(node, c, x, {RankOf(x) - 1, centred, epsilon});
  if (node.IsRead(3)) c.Set(3, x);
  return c.Finish(y);
}
absl::Status SkipLayerNormalization(NodeImporter& node) { return ImportSkip(node, true); }
absl::Status SkipRmsNormalization(NodeImporter& node) { return ImportSkip(node, false); }

absl::Status InstanceNormalization(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), scale = c.Input(1), bias = c.Input(2);
  if (RankOf(x) < 3) return absl::InvalidArgumentError(absl::StrCat("its input is ", x->type.ToString(), ", no image"));
  ImportValue y = Normalized(c, x, 2, node.Float("epsilon", 1e-5), true);
  return c.Finish(c.Add(c.Mul(y, OfChannels(c, scale, RankOf(x))), OfChannels(c, bias, RankOf(x))));
}

// Scale and bias are of groups in opset 18, of channels from 21 on.
absl::Status GroupNormalization(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), scale = c.Input(1), bias = c.Input(2);
  int64_t groups = node.Int("num_groups", 1), rank = RankOf(x);
  node.Int("stash_type", 1);
  if (rank < 2 || groups < 1 || x->type.shape[1] % groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(x->type.ToString(), " has no channels in ", groups, " groups"));
  }
  ImportValue y = c.Reshape(x, {x->type.shape[0], groups, -1});
  y = Normalized(c, y, 2, node.Float("epsilon", 1e-5), true);
  if (node.opset() < 21) y = c.Add(c.Mul(y, OfChannels(c, scale, 3)), OfChannels(c, bias, 3));
  y = c.Reshape(y, x->type.shape);
  if (node.opset() >= 21) y = c.Add(c.Mul(y, OfChannels(c, scale, rank)), OfChannels(c, bias, rank));
  return c.Finish(y);
}

absl::Status MeanVarianceNormalization(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  Attributes over{{"axes", node.Ints("axes", {0, 2, 3})}, {"keepdims", int64_t{1}}};
  ImportValue centred = c.Sub(x, c.Op("reduce_mean", {x}, over));
  ImportValue deviation = c.Op("sqrt", {c.Op("reduce_mean", {c.Mul(centred, centred)}, over)});
  return c.Finish(c.Div(centred, c.Add(deviation, c.Scalar(1e-9, x))));
}

absl::Status LpNormalization(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(node.Int("axis", -1), x));
  int64_t p = node.Int("p", 2);
  if (p != 1 && p != 2) return absl::InvalidArgumentError(absl::StrCat("p must be 1 or 2, not ", p));
  ImportValue power = p == 1 ? c.Op("abs", {x}) : c.Mul(x, x);
  ImportValue norm = c.Op("reduce_sum", {power}, {{"axes", Ints{axis}}, {"keepdims", int64_t{1}}});
  if (p == 2) norm = c.Op("sqrt", {norm});
  // Zeros stay zeros.
  norm = c.Op("where", {c.Op("equal", {norm, c.Scalar(0, norm)}), c.Scalar(1, norm), norm});
  return c.Finish(c.Div(x, norm));
}

// x / (bias + alpha / size * sum of the squares of `size` channels around)^beta.
absl::Status Lrn(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  int64_t size = node.Int("size", 1), rank = RankOf(x);
  if (rank < 3 || size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("size ", size, " does not fit ", x->type.ToString()));
  }
  const Ints& shape = x->type.shape;
  ImportValue squares = c.Reshape(c.Mul(x, x), {shape[0], 1, shape[1], -1});
  ImportValue mean = c.Op(
      "avg_pool", {squares},
      {{"kernel", Ints{size, 1}}, {"pads", Ints{(size - 1) / 2, 0, size / 2, 0}}, {"count_include_pad", int64_t{1}}});
  ImportValue scaled = c.Mul(c.Reshape(mean, shape), c.Scalar(node.Float("alpha", 1e-4), x));
  ImportValue base = c.Add(scaled, c.Scalar(node.Float("bias", 1), x));
  return c.Finish(c.Div(x, c.Op("pow", {base, c.Scalar(node.Float("beta", 0.75), x)})));
}

}  // namespace

std::vector<OnnxRule> Normalization() {
  return {{"LayerNormalization", LayerNormalization},
          {"RMSNormalization", RmsNormalization},
          {"SimplifiedLayerNormalization", RmsNormalization},
          {"InstanceNormalization", InstanceNormalization},
          {"GroupNormalization", GroupNormalization},
          {"MeanVarianceNormalization", MeanVarianceNormalization},
          {"LpNormalization", LpNormalization},
          {"LRN", Lrn},
          {"com.microsoft.SimplifiedLayerNormalization", RmsNormalization},
          {"com.microsoft.SkipLayerNormalization", SkipLayerNormalization},
          {"com.microsoft.SkipSimplifiedLayerNormalization", SkipRmsNormalization}};
}

}  // namespace diapason::onnx_rules
