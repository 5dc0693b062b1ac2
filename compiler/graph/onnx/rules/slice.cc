// Parts of a tensor.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// Attributes before opset 10, inputs from there on.
absl::Status ImportSlice(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  Attributes attributes;
  int input = 1;
  for (const char* name : {"starts", "ends", "axes", "steps"}) {
    ASSIGN_OR_RETURN(NodeImporter::OptionalInts list, node.IntsByOpset(name, 10, input++));
    if (list.present) attributes.Set(name, list.values);
  }
  for (int64_t step : attributes.Ints("steps", {})) {
    if (step == 0 || step < -(int64_t{1} << 31) || step > int64_t{1} << 31) {
      return absl::InvalidArgumentError(absl::StrCat("a step cannot be ", step));
    }
  }
  std::set<int64_t> named;
  for (int64_t axis : attributes.Ints("axes", {})) {
    const int64_t normal = axis < 0 ? axis + RankOf(x) : axis;
    if (!named.insert(normal).second)
      return absl::InvalidArgumentError(absl::StrCat("axis ", normal, " is named twice in its axes"));
  }
  return node.Emit("slice", {x}, std::move(attributes));
}

// One slice for each result. Equal parts unless the model says which.
absl::Status ImportSplit(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts split, node.IntsByOpset("split", 13, 1));
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(node.Int("axis", 0), x));
  int64_t extent = x->type.shape[axis];
  int64_t count = static_cast<int64_t>(node.node().outputs.size());
  std::vector<int64_t> parts = split.present ? split.values : std::vector<int64_t>(count, extent / count);
  const int64_t named = node.Int("num_outputs", count);
  if (named != count)
    return absl::InvalidArgumentError(
        absl::StrCat("num_outputs is ", named, ", but the number of its results is ", count));
  if (!split.present && node.opset() >= 18) {
    int64_t larger = (extent + count - 1) / count;
    for (int64_t i = 0; i < count; ++i) parts[i] = std::clamp<int64_t>(extent - i * larger, 0, larger);
  }
  int64_t sum = 0;
  for (int64_t part : parts) sum = part < 0 || part > extent ? -1 : sum < 0 ? sum : sum + part;
  if (static_cast<int64_t>(parts.size()) != count || sum != extent) {
    return absl::InvalidArgumentError(
        absl::StrCat("an axis of ", extent, " cannot be split into ", count, " parts of ", absl::StrJoin(parts, ", ")));
  }
  int64_t start = 0;
  for (int64_t i = 0; i < count; start += parts[i++]) {
    if (!node.IsRead(static_cast<int>(i))) continue;
    if (parts[i] == 0) {  // a Concat leaves it out
      std::vector<int64_t> shape = x->type.shape;
      shape[axis] = 0;
      node.Set(static_cast<int>(i), KnownValue(Array(x->type.dtype, shape), node.node().name));
      continue;
    }
    std::vector<int64_t> starts = {start}, ends = {start + parts[i]}, axes = {axis};
    ASSIGN_OR_RETURN(ImportValue part, node.Add("slice", {x}, {{"starts", starts}, {"ends", ends}, {"axes", axes}}));
    node.Set(static_cast<int>(i), std::move(part));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<OnnxRule> Slice() { return {{"Slice", ImportSlice}, {"Split", ImportSplit}}; }

}  // namespace diapason::onnx_rules
