// Losses: how far the numbers of classes are from the classes that are right.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// The negative numbers of the right classes, weighted, and their sum or mean. x is batch x classes x ...; targets are
// batch x ...
ImportValue Likelihood(NodeImporter& node, Composer& c, const ImportValue& x) {
  ImportValue target = c.Cast(c.Input(1), DType::kInt64), weight;
  if (!c.ok()) return x;
  Ints expected = x->type.shape;
  if (expected.size() >= 2) expected.erase(expected.begin() + 1);
  if (x->type.shape.size() < 2 || target->type.shape != expected) {
    c.Fail(absl::InvalidArgumentError(
        absl::StrCat("targets of ", target->type.ToString(), " do not fit ", x->type.ToString())));
    return x;
  }
  ImportValue safe = target, zero = c.Scalar(0, x);
  if (node.Has("ignore_index")) {
    ImportValue ignored = c.Op("equal", {target, c.Scalar(static_cast<double>(node.Int("ignore_index", 0)), target)});
    safe = c.Op("where", {ignored, c.Scalar(0, target), target});
    weight = c.Op("where", {ignored, zero, c.Scalar(1, x)});
  }
  if (node.HasInput(2)) {
    ImportValue of_class = c.Op("gather", {c.Input(2), safe}, {{"axis", int64_t{0}}});
    weight = weight ? c.Mul(of_class, weight) : of_class;
  }
  ImportValue chosen = c.Op("gather_elements", {x, c.Unsqueeze(safe, {1})}, {{"axis", int64_t{1}}});
  ImportValue loss = c.Op("neg", {c.Squeeze(chosen, {1})});
  if (weight) loss = c.Mul(loss, weight);
  std::string reduction = node.String("reduction", "mean");
  if (reduction == "none") return loss;
  Attributes all{{"keepdims", int64_t{0}}};
  if (reduction == "sum") return c.Op("reduce_sum", {loss}, all);
  if (reduction == "mean") {
    if (!weight) return c.Op("reduce_mean", {loss}, all);
    return c.Div(c.Op("reduce_sum", {loss}, all), c.Op("reduce_sum", {weight}, all));
  }
  c.Fail(absl::InvalidArgumentError(absl::StrCat("reduction must be none, sum or mean, not '", reduction, "'")));
  return loss;
}

absl::Status NegativeLogLikelihoodLoss(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  return c.Finish(Likelihood(node, c, x));
}

absl::Status SoftmaxCrossEntropyLoss(NodeImporter& node) {
  Composer c(node);
  ImportValue logarithms = c.Op("log_softmax", {c.Input(0)}, {{"axis", int64_t{1}}});
  if (node.IsRead(1)) c.Set(1, logarithms);
  return c.Finish(Likelihood(node, c, logarithms));
}

}  // namespace

std::vector<OnnxRule> Loss() {
  return {{"NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss},
          {"SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss}};
}

}  // namespace diapason::onnx_rules
