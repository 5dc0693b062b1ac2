// Products of matrices.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/padding/rules.h"

namespace diapason {
namespace {

// An operand of a product and its axis that is summed up.
struct Operand {
  int tensor;
  size_t axis;
};

// Along the axis that is summed up: zeros in one of the operands, and nothing in the other that is not finite.
absl::Status Contract(const PaddingFacts& facts, const Node& node, Operand left, Operand right) {
  const PaddingFact &a = facts.of(left.tensor), &b = facts.of(right.tensor);
  if (a.blocks[left.axis] == 0 && b.blocks[right.axis] == 0) return absl::OkStatus();
  if (a.blocks[left.axis] != b.blocks[right.axis]) return facts.Combines(node);
  const PaddedValue &x = a.padded[left.axis], &y = b.padded[right.axis];
  if (!x.is(0) && !y.is(0)) return facts.Combines(node);
  if (x.finite(a.range.finite()) && y.finite(b.range.finite())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(NameForPadding(node), " multiplies zeros of padding along '",
                                                    facts.symbol(), "' by values that may be infinite"));
}

absl::Status FollowMatmul(PaddingFacts& facts, const Node& node, const Node&) {
  const int left = node.inputs[0], right = node.inputs[1];
  const size_t a = facts.of(left).blocks.size(), b = facts.of(right).blocks.size(),
               rank = facts.of(node.output).blocks.size();
  RETURN_IF_ERROR(Contract(facts, node, {left, a - 1}, {right, b < 2 ? 0 : b - 2}));
  const size_t batch = rank - (a > 1) - (b > 1);
  // Batch axes are aligned at the end; those of extent 1 are repeated.
  const auto axes_of = [&](int input, size_t own) {
    std::vector<int> result_axis(own, -1);
    for (size_t d = 0; d + 2 < own; ++d)
      if (facts.shape(input)[d] != 1) result_axis[d] = static_cast<int>(batch - (own - 2) + d);
    return result_axis;
  };
  std::vector<std::pair<int, std::vector<int>>> sources = {{left, axes_of(left, a)}, {right, axes_of(right, b)}};
  if (a > 1) sources[0].second[a - 2] = static_cast<int>(batch);
  if (b > 1) sources[1].second[b - 1] = static_cast<int>(rank) - 1;
  for (const auto& [input, result_axis] : sources)
    for (size_t d = 0; d < result_axis.size(); ++d)
      if (result_axis[d] >= 0 && facts.of(input).blocks[d] != facts.of(node.output).blocks[result_axis[d]])
        return facts.Combines(node);
  return EveryAxisHasASource(facts, node, sources);
}

absl::Status FollowGemm(PaddingFacts& facts, const Node& node, const Node&) {
  const bool left_turned = node.attributes.Int("trans_a", 0) != 0,
             right_turned = node.attributes.Int("trans_b", 0) != 0;
  RETURN_IF_ERROR(
      Contract(facts, node, {node.inputs[0], left_turned ? 0u : 1u}, {node.inputs[1], right_turned ? 1u : 0u}));
  const RowBlocks& result = facts.of(node.output).blocks;
  if (facts.of(node.inputs[0]).blocks[left_turned ? 1 : 0] != result[0] ||
      facts.of(node.inputs[1]).blocks[right_turned ? 0 : 1] != result[1])
    return facts.Combines(node);
  if (node.inputs.size() < 3) return absl::OkStatus();
  const RowBlocks& c = facts.of(node.inputs[2]).blocks;
  for (size_t d = 0; d < c.size(); ++d)
    if (facts.shape(node.inputs[2])[d] != 1 && c[d] != result[2 - c.size() + d]) return facts.Combines(node);
  return absl::OkStatus();
}

}  // namespace

const std::map<std::string, PaddingRule>& PaddingRulesOfProducts() {
  static const auto& rules = *new std::map<std::string, PaddingRule>{
      {"gemm", FollowGemm},
      {"matmul", FollowMatmul},
  };
  return rules;
}

}  // namespace diapason
