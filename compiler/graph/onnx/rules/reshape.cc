// Other shapes and orders of the same elements. Shapes and axes must be known.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// Extents that may be inferred (-1) or copied (0) are at least `minimum`; their product stays far below overflow.
absl::Status CheckShape(const std::vector<int64_t>& shape, int64_t minimum) {
  int64_t product = 1;
  for (int64_t extent : shape) {
    bool fits = extent >= minimum && extent <= int64_t{1} << 40;
    if (fits && extent > 0) {
      product = product > (int64_t{1} << 40) / extent ? -1 : product * extent;
      fits = product > 0;
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("the shape ", absl::StrJoin(shape, "x"), " is out of range"));
    }
  }
  return absl::OkStatus();
}

absl::Status ImportReshape(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, node.KnownInts(1, "the shape"));
  RETURN_IF_ERROR(CheckShape(shape, -1));
  bool zero = false, allow_zero = node.Int("allowzero", 0) != 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    zero |= shape[d] == 0;
    if (shape[d] != 0) continue;
    if (d >= x->type.shape.size()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no extent ", d, " of ", x->type.ToString(), " to copy"));
    }
  }
  if (zero && allow_zero) return absl::InvalidArgumentError("empty tensors are not supported");
  return node.Emit("reshape", {x}, {{"shape", shape}});
}

absl::Status ImportFlatten(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  return node.Emit("flatten", {x}, {{"axis", node.Int("axis", 1)}});
}

absl::Status ImportSqueeze(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts axes, node.IntsByOpset("axes", 13, 1));
  Attributes attributes;
  if (axes.present) attributes.Set("axes", axes.values);
  return node.Emit("squeeze", {x}, std::move(attributes));
}

absl::Status ImportUnsqueeze(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts axes, node.IntsByOpset("axes", 13, 1));
  if (!axes.present) return absl::InvalidArgumentError("axes are missing");
  return node.Emit("unsqueeze", {x}, {{"axes", axes.values}});
}

absl::Status ImportTranspose(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  Attributes attributes;
  if (node.Has("perm")) attributes.Set("perm", node.Ints("perm", {}));
  return node.Emit("transpose", {x}, std::move(attributes));
}

absl::Status ImportExpand(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, node.KnownInts(1, "the shape"));
  RETURN_IF_ERROR(CheckShape(shape, 0));
  return node.Emit("expand", {x}, {{"shape", shape}});
}

}  // namespace

std::vector<OnnxRule> Reshape() {
  return {{"Reshape", ImportReshape},     {"Flatten", ImportFlatten},     {"Squeeze", ImportSqueeze},
          {"Unsqueeze", ImportUnsqueeze}, {"Transpose", ImportTranspose}, {"Expand", ImportExpand}};
}

}  // namespace diapason::onnx_rules
