// Pools over windows of one to three dimensions, and over whole images.
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportPool(NodeImporter& node, const char* op) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  std::vector<int64_t> kernel = node.Ints("kernel_shape", {});
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("kernel", kernel.size() == 1 ? TwoDimensional(kernel, 1) : kernel);
  if (node.Int("count_include_pad", 0) != 0) attributes.Set("count_include_pad", int64_t{1});
  ASSIGN_OR_RETURN(ImportValue image, WithHeight(node, x));
  bool volume = kernel.size() == 3;
  return EmitImage(node, x, volume ? std::string(op) + "3d" : op, {image}, std::move(attributes));
}

absl::Status MaxPool(NodeImporter& node) {
  if (node.IsRead(1)) return absl::InvalidArgumentError("the positions of the maxima are used, which is not supported");
  node.Ignore({"storage_order"});  // of the positions
  return ImportPool(node, "max_pool");
}

absl::Status AveragePool(NodeImporter& node) { return ImportPool(node, "avg_pool"); }

absl::Status ImportGlobal(NodeImporter& node, const char* op) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  int64_t rank = static_cast<int64_t>(x->type.shape.size());
  if (rank < 3) {
    return absl::InvalidArgumentError(absl::StrCat("input 0 must be images, not ", x->type.ToString()));
  }
  std::vector<int64_t> axes;
  for (int64_t d = 2; d < rank; ++d) axes.push_back(d);
  return node.Emit(op, {x}, {{"axes", axes}, {"keepdims", int64_t{1}}});
}

absl::Status GlobalMaxPool(NodeImporter& node) { return ImportGlobal(node, "reduce_max"); }
absl::Status GlobalAveragePool(NodeImporter& node) { return ImportGlobal(node, "reduce_mean"); }

}  // namespace

std::vector<OnnxRule> Pool() {
  return {{"MaxPool", MaxPool},
          {"AveragePool", AveragePool},
          {"GlobalMaxPool", GlobalMaxPool},
          {"GlobalAveragePool", GlobalAveragePool}};
}

}  // namespace diapason::onnx_rules
