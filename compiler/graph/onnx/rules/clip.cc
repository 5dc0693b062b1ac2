// Limits: attributes before opset 11, inputs from there on.
#include <limits>

#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportAttributes(NodeImporter& node, const ImportValue& x) {
  // The default limits are those of float32: none.
  constexpr double kMost = std::numeric_limits<float>::max();
  double min = node.Float("min", -kMost), max = node.Float("max", kMost);
  Attributes attributes;
  if (min > -kMost) attributes.Set("min", min);
  if (max < kMost) attributes.Set("max", max);
  return node.Emit("clip", {x}, std::move(attributes));
}

// A limit that is known becomes an attribute, another one a comparison with a tensor. Limits of integers are compared
// as they are: not every int64 is a double.
absl::Status ImportInputs(NodeImporter& node, const ImportValue& x) {
  Attributes attributes;
  ImportValue value = x;
  for (int i = 1; i <= 2; ++i) {
    if (!node.HasInput(i)) continue;
    ASSIGN_OR_RETURN(ImportValue limit, node.Input(i));
    if (limit->type.elements() != 1) return absl::InvalidArgumentError("limits must be scalars");
    if (limit->value && IsFloat(limit->type.dtype)) {
      attributes.Set(i == 1 ? "min" : "max", limit->value->at(0));
      continue;
    }
    if (!limit->type.shape.empty()) {
      ASSIGN_OR_RETURN(limit, node.Add("reshape", {limit}, {{"shape", std::vector<int64_t>{}}}));
    }
    ASSIGN_OR_RETURN(value, node.Add(i == 1 ? "maximum" : "minimum", {value, limit}));
  }
  return node.Emit("clip", {value}, std::move(attributes));
}

absl::Status ImportClip(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  return node.opset() < 11 ? ImportAttributes(node, x) : ImportInputs(node, x);
}

}  // namespace

std::vector<OnnxRule> Clip() { return {{"Clip", ImportClip}}; }

}  // namespace diapason::onnx_rules
