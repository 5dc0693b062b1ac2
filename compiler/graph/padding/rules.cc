#include "compiler/graph/padding/rules.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

absl::Status MixesAxes(const PaddingFacts& facts, const Node& node) {
  return absl::FailedPreconditionError(
      absl::StrCat(NameForPadding(node), " mixes '", facts.symbol(), "' with other axes"));
}

}  // namespace

absl::Status CarryPadding(PaddingFacts& facts, const Node& node, int input, const std::vector<int>& result_axis) {
  const PaddingFact& from = facts.of(input);
  PaddingFact& to = facts.of(node.output);
  for (size_t d = 0; d < from.blocks.size(); ++d) {
    if (from.blocks[d] == 0) continue;
    if (result_axis[d] < 0 || to.blocks[result_axis[d]] != from.blocks[d]) return facts.Combines(node);
    to.padded[result_axis[d]] = from.padded[d];
  }
  return EveryAxisHasASource(facts, node, {{input, result_axis}});
}

absl::Status CarryAxes(PaddingFacts& facts, const Node& node, int input) {
  std::vector<int> same(facts.of(input).blocks.size());
  std::iota(same.begin(), same.end(), 0);
  RETURN_IF_ERROR(CarryPadding(facts, node, input, same));
  for (PaddedValue& value : facts.of(node.output).padded) value = {};
  return absl::OkStatus();
}

absl::Status EveryAxisHasASource(const PaddingFacts& facts, const Node& node,
                                 const std::vector<std::pair<int, std::vector<int>>>& sources) {
  const RowBlocks& blocks = facts.of(node.output).blocks;
  for (size_t r = 0; r < blocks.size(); ++r) {
    bool found = blocks[r] == 0;
    for (const auto& [input, result_axis] : sources)
      for (size_t d = 0; d < result_axis.size(); ++d)
        found = found || (result_axis[d] == static_cast<int>(r) && facts.of(input).blocks[d] == blocks[r]);
    if (!found) return facts.Combines(node);
  }
  return absl::OkStatus();
}

// Also expand: axes are aligned at the end, and an input of extent 1 is repeated.
absl::Status FollowElementwise(PaddingFacts& facts, const Node& node, const Node&) {
  PaddingFact& to = facts.of(node.output);
  const size_t rank = to.blocks.size();
  for (size_t r = 0; r < rank; ++r) {
    std::vector<PaddedValue> values;
    std::vector<bool> finite;
    for (int input : node.inputs) {
      const PaddingFact& from = facts.of(input);
      finite.push_back(from.range.finite());
      const size_t missing = rank - from.blocks.size();
      values.push_back(from.uniform.has_value() ? PaddedValue::Known(*from.uniform) : PaddedValue());
      if (r < missing || facts.shape(input)[r - missing] == 1) continue;
      if (from.blocks[r - missing] != to.blocks[r]) return facts.Combines(node);
      if (to.blocks[r] > 0) values.back() = from.padded[r - missing];
    }
    if (to.blocks[r] > 0)
      to.padded[r] = node.op == "expand" ? values[0] : CombinePadded(facts.network(), node, values, finite);
  }
  return absl::OkStatus();
}

// Elements keep their order. A growing axis stays one when as many elements lie in front of it.
absl::Status FollowView(PaddingFacts& facts, const Node& node, const Node& twin) {
  const PaddingFact& from = facts.of(node.inputs[0]);
  std::vector<int> result_axis(from.blocks.size(), -1);
  const auto outer = [](const std::vector<int64_t>& shape, size_t axis) {
    return std::accumulate(shape.begin(), shape.begin() + static_cast<int64_t>(axis), int64_t{1}, std::multiplies<>());
  };
  const std::vector<int64_t>&x = facts.shape(node.inputs[0]), &y = facts.shape(node.output);
  const std::vector<int64_t>&x2 = facts.twin().tensor(twin.inputs[0]).type.shape,
        &y2 = facts.twin().tensor(twin.output).type.shape;
  RowBlocks& blocks = facts.of(node.output).blocks;
  for (size_t d = 0; d < x.size(); ++d) {
    if (from.blocks[d] == 0) continue;
    for (size_t r = 0; r < y.size(); ++r)
      if (blocks[r] > 0 && outer(x, d) == outer(y, r) && outer(x2, d) == outer(y2, r))
        result_axis[d] = static_cast<int>(r);
    if (result_axis[d] < 0) {
      return MixesAxes(facts, node);
    }
    facts.of(node.output).padded[result_axis[d]] = from.padded[d];
  }
  const auto growing = [](const RowBlocks& all) {
    return std::count_if(all.begin(), all.end(), [](int64_t block) { return block > 0; });
  };
  if (growing(from.blocks) != growing(blocks)) return MixesAxes(facts, node);
  return absl::OkStatus();
}

}  // namespace diapason
