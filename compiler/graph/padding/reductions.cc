// Operators that combine elements along axes.
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "compiler/graph/padding/rules.h"
#include "compiler/graph/rank.h"

namespace diapason {
namespace {

absl::Status FollowBatchNorm(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  if (x.blocks[AxisFromStart(node.attributes.Int("axis", 1), x.blocks.size())] > 0) return facts.Combines(node);
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (Grows(facts.of(node.inputs[i]).blocks)) return facts.Combines(node);
  return CarryAxes(facts, node, node.inputs[0]);
}

absl::Status FollowNormAxes(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  for (size_t d = AxisFromStart(node.attributes.Int("axis", -1), x.blocks.size()); d < x.blocks.size(); ++d)
    if (x.blocks[d] > 0) return facts.Combines(node);
  return CarryAxes(facts, node, node.inputs[0]);
}

absl::Status FollowSoftmax(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  const size_t axis = AxisFromStart(node.attributes.Int("axis", -1), x.blocks.size());
  if (x.blocks[axis] > 0 && !x.padded[axis].low()) return facts.Combines(node);
  if (x.blocks[axis] > 0) facts.RestOnFirst(x.padded[axis]);
  RETURN_IF_ERROR(CarryAxes(facts, node, node.inputs[0]));
  if (x.blocks[axis] > 0 && node.op == "softmax") facts.of(node.output).padded[axis] = PaddedValue::Known(0);
  return absl::OkStatus();
}

// Whether values of the padding change nothing when they are reduced with the real ones.
bool Neutral(const std::string& op, const PaddedValue& value) {
  if (op == "reduce_sum") return value.is(0);
  if (op == "reduce_prod") return value.is(1);
  if (op == "reduce_max" || op == "arg_max") return value.low();
  if (op == "reduce_min" || op == "arg_min") return value.kind == PaddedValue::Kind::kKnown && value.value >= 1e4;
  return false;
}

absl::Status FollowReduce(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  const size_t rank = x.blocks.size();
  std::vector<bool> reduced(rank, !node.attributes.has("axes"));
  for (int64_t axis : node.attributes.Ints("axes", {})) reduced[AxisFromStart(axis, rank)] = true;
  const bool keep = node.attributes.Int("keepdims", 1) != 0;
  bool over_padding = false;
  std::vector<int> result_axis(rank, -1);
  int next = 0;
  PaddingFact& to = facts.of(node.output);
  for (size_t d = 0; d < rank; ++d) {
    if (reduced[d] && x.blocks[d] > 0) {
      if (!Neutral(node.op, x.padded[d])) return facts.Combines(node);
      if (node.op == "reduce_max" || node.op == "reduce_min") facts.RestOnFirst(x.padded[d]);
      over_padding = true;
    }
    if (!reduced[d]) {
      if (x.blocks[d] != to.blocks[next]) return facts.Combines(node);
      result_axis[d] = next;
    }
    if (!reduced[d] || keep) ++next;
  }
  for (size_t d = 0; d < rank; ++d) {
    if (reduced[d] || x.blocks[d] == 0) continue;
    const bool stays = !over_padding && x.padded[d].kind == PaddedValue::Kind::kKnown &&
                       (x.padded[d].value == 0 || (node.op != "reduce_sum" && node.op != "reduce_prod"));
    to.padded[result_axis[d]] = stays ? x.padded[d] : PaddedValue();
  }
  return absl::OkStatus();
}

// Scans and searches along one axis.
absl::Status FollowAlongAxis(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  const size_t axis = AxisFromStart(node.attributes.Int("axis", 0), x.blocks.size());
  if (x.blocks[axis] > 0) {
    const bool forward = node.op == "cumulative_sum" && node.attributes.Int("reverse", 0) == 0;
    if (node.op == "cumulative_sum" ? !forward && !x.padded[axis].is(0) : !Neutral(node.op, x.padded[axis]))
      return facts.Combines(node);
    if (node.op != "cumulative_sum") facts.RestOnFirst(x.padded[axis]);
  }
  for (size_t d = 0; d < x.blocks.size(); ++d)
    if ((d != axis || node.op == "cumulative_sum") && x.blocks[d] != facts.of(node.output).blocks[d])
      return facts.Combines(node);
  if (node.op != "cumulative_sum" && facts.of(node.output).blocks[axis] > 0) return facts.Combines(node);
  return absl::OkStatus();
}

}  // namespace

const std::map<std::string, PaddingRule>& PaddingRulesOfReductions() {
  static const auto& rules = *new std::map<std::string, PaddingRule>{
      {"arg_max", FollowAlongAxis},        {"arg_min", FollowAlongAxis},       {"batch_norm", FollowBatchNorm},
      {"cumulative_sum", FollowAlongAxis}, {"layer_norm", FollowNormAxes},     {"log_softmax", FollowSoftmax},
      {"reduce_max", FollowReduce},        {"reduce_mean", FollowReduce},      {"reduce_min", FollowReduce},
      {"reduce_prod", FollowReduce},       {"reduce_sum", FollowReduce},       {"rms_norm", FollowNormAxes},
      {"softmax", FollowSoftmax},          {"top_k_indices", FollowAlongAxis},
  };
  return rules;
}

}  // namespace diapason
