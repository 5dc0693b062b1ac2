// Batch normalisation.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// By the mean and variance of x itself, over all axes but the second. Exporters write it for weights that are
// standardized as the network runs. Results 1 and 2 are the statistics that a training would go on with.
absl::Status ByOwnStatistics(NodeImporter& node, const std::vector<ImportValue>& inputs) {
  Composer c(node);
  const int64_t rank = RankOf(inputs[0]);
  if (rank < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 must have at least 2 dimensions, not ", inputs[0]->type.ToString()));
  Composer::Ints axes, shape(rank, 1);
  for (int64_t d = 0; d < rank; ++d)
    if (d != 1) axes.push_back(d);
  shape[1] = inputs[0]->type.shape[1];
  const auto wide = [&](int i) { return c.Cast(inputs[i], DType::kFloat32); };
  const auto mean = [&](const ImportValue& of) {
    return c.Op("reduce_mean", {of}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  };
  const ImportValue x = wide(0), middle = mean(x), centred = c.Sub(x, middle), variance = mean(c.Mul(centred, centred));
  const ImportValue deviation = c.Op("sqrt", {c.Add(variance, c.Scalar(node.Float("epsilon", 1e-5), x))});
  const ImportValue y = c.Add(c.Mul(c.Div(centred, deviation), c.Reshape(wide(1), shape)), c.Reshape(wide(2), shape));
  c.Set(0, c.Cast(y, inputs[0]->type.dtype));
  const double momentum = node.Float("momentum", 0.9);
  const auto moved = [&](int result, const ImportValue& now) {
    if (!node.IsRead(result)) return;
    const ImportValue before = wide(result + 2);
    const ImportValue share = c.Mul(c.Reshape(now, {shape[1]}), c.Scalar(1 - momentum, before));
    c.Set(result, c.Cast(c.Add(c.Mul(before, c.Scalar(momentum, before)), share), inputs[result + 2]->type.dtype));
  };
  moved(1, middle);
  moved(2, variance);
  return c.status();
}

// By statistics for each element of an image: all parameters are as x without its first axis.
absl::Status ByElementStatistics(NodeImporter& node, const std::vector<ImportValue>& inputs) {
  Composer c(node);
  const ImportValue &x = inputs[0], &variance = inputs[4];
  const Composer::Ints& shape = x->type.shape;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Composer::Ints& of = inputs[i]->type.shape;
    if (!shape.empty() && of == Composer::Ints(shape.begin() + 1, shape.end())) continue;
    return absl::InvalidArgumentError(absl::StrCat("with spatial=0, input ", i, " must be as an element of input 0 (",
                                                   x->type.ToString(), "), not ", inputs[i]->type.ToString()));
  }
  const ImportValue deviation = c.Op("sqrt", {c.Add(variance, c.Scalar(node.Float("epsilon", 1e-5), variance))});
  return c.Finish(c.Add(c.Mul(c.Div(c.Sub(x, inputs[3]), deviation), inputs[1]), inputs[2]));
}

absl::Status ImportBatchNormalization(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  if (inputs.size() != 5) return absl::InvalidArgumentError("it must have 5 inputs");
  if (node.Int("training_mode", 0) != 0) return ByOwnStatistics(node, inputs);
  // Before opset 14 training shows by further results.
  for (size_t i = 1; i < node.node().outputs.size(); ++i) {
    if (node.node().outputs[i].empty()) continue;
    return absl::InvalidArgumentError("it is in training mode, which is not supported: export the model for inference");
  }
  node.Ignore({"momentum"});
  if (node.Int("spatial", 1) == 0) return ByElementStatistics(node, inputs);
  // From opset 15 on, parameters may have another type.
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i]->type.dtype == inputs[0]->type.dtype) continue;
    ASSIGN_OR_RETURN(inputs[i], node.Add("cast", {inputs[i]}, {{"to", NameOf(inputs[0]->type.dtype)}}));
  }
  return node.Emit("batch_norm", inputs, {{"axis", int64_t{1}}, {"epsilon", node.Float("epsilon", 1e-5)}});
}

}  // namespace

std::vector<OnnxRule> BatchNormalization() { return {{"BatchNormalization", ImportBatchNormalization}}; }

}  // namespace diapason::onnx_rules
