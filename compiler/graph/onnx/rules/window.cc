#include "compiler/graph/onnx/rules/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason::onnx_rules {
namespace {

// Padding so that the window gives input / stride positions, rounded up; an odd amount is larger at the end for
// SAME_UPPER, in front for SAME_LOWER.
std::vector<int64_t> SamePads(const std::vector<int64_t>& image, const std::vector<int64_t>& kernel,
                              const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations, bool upper) {
  size_t rank = image.size();
  std::vector<int64_t> pads(2 * rank);
  for (size_t d = 0; d < rank; ++d) {
    int64_t output = (image[d] + strides[d] - 1) / strides[d];
    int64_t total = (output - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - image[d];
    total = std::max<int64_t>(total, 0);
    pads[d] = upper ? total / 2 : total - total / 2;
    pads[d + rank] = total - pads[d];
  }
  return pads;
}

absl::Status CheckList(const std::string& name, const std::vector<int64_t>& list, size_t length, int64_t minimum) {
  if (list.size() != length) {
    return absl::InvalidArgumentError(absl::StrCat(name, " must have ", length, " numbers, not ", list.size()));
  }
  for (int64_t value : list) {
    if (value < minimum) {
      return absl::InvalidArgumentError(absl::StrCat(name, " must be at least ", minimum, ", not ", value));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> TwoDimensional(const std::vector<int64_t>& list, int64_t fill) {
  if (list.size() == 1) return {fill, list[0]};
  return {fill, list[0], fill, list[1]};
}

absl::StatusOr<Attributes> WindowAttributes(NodeImporter& node, const ImportValue& x,
                                            const std::vector<int64_t>& kernel) {
  const std::vector<int64_t>& shape = x->type.shape;
  if (shape.size() < 3 || shape.size() > 5) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 must be images of 1 to 3 dimensions (a tensor of 3 to 5), not ", x->type.ToString()));
  }
  std::vector<int64_t> image(shape.begin() + 2, shape.end());
  size_t rank = image.size();
  std::vector<int64_t> ones(rank, 1);
  std::vector<int64_t> strides = node.Ints("strides", ones), dilations = node.Ints("dilations", ones);
  std::vector<int64_t> pads = node.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  RETURN_IF_ERROR(CheckList("kernel_shape", kernel, rank, 1));
  RETURN_IF_ERROR(CheckList("strides", strides, rank, 1));
  RETURN_IF_ERROR(CheckList("dilations", dilations, rank, 1));
  std::string same = node.String("auto_pad", "NOTSET");
  if (same == "SAME_UPPER" || same == "SAME_LOWER") {
    pads = SamePads(image, kernel, strides, dilations, same == "SAME_UPPER");
  } else if (same == "VALID") {
    pads.assign(2 * rank, 0);
  } else if (same != "NOTSET" && !same.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, not '", same, "'"));
  }
  RETURN_IF_ERROR(CheckList("pads", pads, 2 * rank, 0));
  if (rank == 1) {
    strides = TwoDimensional(strides, 1);
    dilations = TwoDimensional(dilations, 1);
    pads = TwoDimensional(pads, 0);
  }
  Attributes attributes{{"strides", strides}, {"pads", pads}, {"dilations", dilations}};
  if (node.Int("ceil_mode", 0) != 0) attributes.Set("ceil_mode", int64_t{1});
  return attributes;
}

absl::StatusOr<ImportValue> WithHeight(NodeImporter& node, const ImportValue& value) {
  if (value->type.shape.size() != 3) return value;
  return node.Add("unsqueeze", {value}, {{"axes", std::vector<int64_t>{2}}});
}

absl::Status EmitImage(NodeImporter& node, const ImportValue& like, const std::string& op,
                       const std::vector<ImportValue>& inputs, Attributes attributes) {
  ASSIGN_OR_RETURN(ImportValue result, node.Add(op, inputs, std::move(attributes)));
  if (like->type.shape.size() == 3) {
    ASSIGN_OR_RETURN(result, node.Add("squeeze", {result}, {{"axes", std::vector<int64_t>{2}}}));
  }
  node.Set(0, std::move(result));
  return absl::OkStatus();
}

}  // namespace diapason::onnx_rules
