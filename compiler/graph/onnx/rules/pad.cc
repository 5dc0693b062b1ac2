// Padding: attributes before opset 11, inputs from there on. A value to pad with that the network computes is chosen
// behind a padding by zeros, by masks along each axis.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// Which elements along an axis of the result come from x, in the last but `behind` axis.
Array InsideOf(int64_t extent, int64_t before, int64_t after, int64_t behind) {
  std::vector<int64_t> shape(behind + 1, 1);
  shape[0] = before + extent + after;
  Array inside(DType::kBool, shape);
  for (int64_t i = std::max<int64_t>(before, 0); i < std::min(before + extent, shape[0]); ++i) inside.set_int(i, 1);
  return inside;
}

absl::Status PadByComputed(NodeImporter& node, const ImportValue& x, const ImportValue& fill,
                           const std::vector<int64_t>& pads) {
  Composer c(node);
  const ImportValue padded = c.Op("pad", {x}, {{"pads", pads}});
  ImportValue inside;
  for (int64_t d = 0, rank = RankOf(x); c.ok() && d < rank; ++d) {
    const int64_t before = pads[d], after = pads[d + rank];
    if (before <= 0 && after <= 0) continue;
    const ImportValue mask = c.Constant(InsideOf(x->type.shape[d], before, after, rank - 1 - d));
    inside = inside ? c.Op("and", {inside, mask}) : mask;
  }
  return c.Finish(inside ? c.Op("where", {inside, padded, c.Reshape(fill, {})}) : padded);
}

absl::Status ImportPad(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts pads, node.IntsByOpset("pads", 11, 1));
  int64_t rank = static_cast<int64_t>(x->type.shape.size());
  if (node.HasInput(3)) {  // from opset 18 on: the axes that the pads are for
    ASSIGN_OR_RETURN(std::vector<int64_t> axes, node.KnownInts(3, "the axes"));
    std::vector<int64_t> all(2 * rank, 0);
    if (pads.values.size() != 2 * axes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(pads.values.size(), " pads are given for ", axes.size(), " axes"));
    }
    for (size_t k = 0; k < axes.size(); ++k) {
      ASSIGN_OR_RETURN(int64_t axis, NormalAxis(axes[k], x));
      all[axis] = pads.values[k];
      all[axis + rank] = pads.values[k + axes.size()];
    }
    pads.values = all;
  }
  for (int64_t pad : pads.values) {
    if (pad < -(int64_t{1} << 31) || pad > int64_t{1} << 31) return absl::InvalidArgumentError("pads are too large");
  }
  double value = 0;
  if (node.opset() < 11) {
    value = node.Float("value", 0);
  } else if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(ImportValue fill, node.Input(2));
    if (fill->type.elements() != 1)
      return absl::InvalidArgumentError("input 2 (the value to pad with) must have one element");
    if (!fill->value && node.String("mode", "constant") == "constant") return PadByComputed(node, x, fill, pads.values);
    if (fill->value) value = fill->value->at(0);
  }
  return node.Emit("pad", {x}, {{"pads", pads.values}, {"mode", node.String("mode", "constant")}, {"value", value}});
}

}  // namespace

std::vector<OnnxRule> Pad() { return {{"Pad", ImportPad}}; }

}  // namespace diapason::onnx_rules
