// Reductions over axes. Those of ReduceSum are an input from opset 13 on; the others have them as an attribute up
// to 17.
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

constexpr int64_t kNever = 1000;  // an opset that no model has

absl::Status Import(NodeImporter& node, const char* op, int64_t axes_input_opset = kNever) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts axes, node.IntsByOpset("axes", axes_input_opset, 1));
  bool none = axes.values.empty();
  if (none && node.Int("noop_with_empty_axes", 0) != 0) return node.Emit("identity", {x});
  Attributes attributes{{"keepdims", node.Int("keepdims", 1)}};
  if (!none) attributes.Set("axes", axes.values);
  return node.Emit(op, {x}, std::move(attributes));
}

absl::Status ReduceMax(NodeImporter& node) { return Import(node, "reduce_max"); }
absl::Status ReduceMean(NodeImporter& node) { return Import(node, "reduce_mean"); }
absl::Status ReduceMin(NodeImporter& node) { return Import(node, "reduce_min"); }
absl::Status ReduceProd(NodeImporter& node) { return Import(node, "reduce_prod"); }
absl::Status ReduceSum(NodeImporter& node) { return Import(node, "reduce_sum", 13); }

}  // namespace

std::vector<OnnxRule> Reduce() {
  return {{"ReduceMax", ReduceMax},
          {"ReduceMean", ReduceMean},
          {"ReduceMin", ReduceMin},
          {"ReduceProd", ReduceProd},
          {"ReduceSum", ReduceSum}};
}

}  // namespace diapason::onnx_rules
