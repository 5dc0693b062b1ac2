// Convolution over images of one or two dimensions.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

absl::Status Import(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue w, node.Input(1));
  const std::vector<int64_t>& weights = w->type.shape;
  if (weights.size() < 3 || weights.size() != x->type.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", w->type.ToString(), " do not fit images of ", x->type.ToString()));
  }
  std::vector<int64_t> kernel(weights.begin() + 2, weights.end());
  std::vector<int64_t> given = node.Ints("kernel_shape", kernel);
  if (given != kernel) {
    return absl::InvalidArgumentError(absl::StrCat("kernel_shape is ", absl::StrJoin(given, "x"), ", but the weights ",
                                                   "are for ", absl::StrJoin(kernel, "x")));
  }
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("group", node.Int("group", 1));
  ASSIGN_OR_RETURN(ImportValue image, WithHeight(node, x));
  ASSIGN_OR_RETURN(ImportValue filter, WithHeight(node, w));
  std::vector<ImportValue> inputs = {image, filter};
  if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(ImportValue bias, node.Input(2));
    inputs.push_back(bias);
  }
  return EmitImage(node, x, "conv2d", inputs, std::move(attributes));
}

}  // namespace

std::vector<OnnxRule> Conv() { return {{"Conv", Import}}; }

}  // namespace diapason::onnx_rules
