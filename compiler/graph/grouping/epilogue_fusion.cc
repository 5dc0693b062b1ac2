#include "compiler/graph/grouping/epilogue_fusion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/graph/grouping/producer_fusion.h"
#include "compiler/graph/row_nodes.h"

namespace diapason {
namespace {

// Nodes up to the one in which all readers of a tensor meet.
constexpr size_t kMaxDiamond = 8;

// Whether more than one operand is as large as the result and not constant.
bool ReadsResidual(const Network& network, const Node& node) {
  const int64_t elements = network.tensors[node.output].type.elements();
  return std::count_if(node.inputs.begin(), node.inputs.end(), [&](int input) {
           const Tensor& tensor = network.tensors[input];
           return !tensor.constant() && tensor.type.elements() == elements;
         }) > 1;
}

// What a group is worth as the place of an epilogue: the depth of its anchor, then the size of the anchor's weights.
// The number of its last node decides last, so that nothing else depends on the order of import.
std::tuple<int, int64_t, int> RankOf(const GroupTable& table, int group) {
  const Network& network = table.network();
  const int anchor = table.group(group).anchor;
  int64_t weights = 0;
  if (anchor >= 0 && network.nodes[anchor].inputs.size() > 1)
    weights = network.tensors[network.nodes[anchor].inputs[1]].type.elements();
  return {anchor >= 0 ? table.facts().depth[anchor] : -1, weights, table.group(group).nodes.back()};
}

}  // namespace

// Whether reductions of rows (a normalization, a softmax) alone read what a node computes, and may as well compute it.
bool EpilogueFusion::IsReadByRows(int n) const {
  const int reader = table_.facts().OnlyReader(n);
  const Network& network = table_.network();
  return reader >= 0 && IsCheapToRepeat(network.nodes[n].op) &&
         network.nodes[reader].inputs[0] == network.nodes[n].output &&
         RowsReducedBy(network, network.nodes[reader]).has_value();
}

// The group that a node joins, or -1.
int EpilogueFusion::GroupFor(int n) {
  const GroupingFacts& facts = table_.facts();
  const Node& node = facts.network.nodes[n];
  int best = -1, second = -1;  // by rank
  for (int input : node.inputs) {
    const int from = facts.producer[input];
    if (from < 0 || table_.group_of(from) < 0 || facts.OnlyReader(from) < 0) continue;
    if (facts.network.tensors[input].type.shape != facts.network.tensors[node.output].type.shape) continue;
    int group = table_.group_of(from);
    if (group == best || group == second || table_.group(group).recurrence) continue;
    if (best < 0 || RankOf(table_, group) > RankOf(table_, best)) std::swap(best, group);
    if (group >= 0 && (second < 0 || RankOf(table_, group) > RankOf(table_, second))) second = group;
  }
  const auto has_anchor = [&](int group) { return group >= 0 && table_.group(group).anchor >= 0; };
  if (has_anchor(best) && ReadsResidual(facts.network, node)) {
    table_.AddOption(n, IsReadByRows(n) ? FusionMode::kInReader : FusionMode::kApart);
    if (has_anchor(second)) table_.AddOption(n, FusionMode::kShorterBranch);
  }
  if (table_.ModeOf(n) == FusionMode::kApart || table_.ModeOf(n) == FusionMode::kInReader) return -1;
  return table_.ModeOf(n) == FusionMode::kShorterBranch && second >= 0 ? second : best;
}

bool EpilogueFusion::Join(int n) {
  const int group = GroupFor(n);
  return group >= 0 && table_.Append(group, {n});
}

bool EpilogueFusion::JoinDiamond(const Node& node) {
  const GroupingFacts& facts = table_.facts();
  for (int input : node.inputs) {
    const int group = table_.GroupThatEndsIn(input);
    if (group < 0 || facts.consumers[input].size() < 2) continue;
    const std::vector<int64_t>& shape = facts.network.tensors[input].type.shape;
    const std::vector<int> diamond = table_.NodesUpToMeeting(input, kMaxDiamond, [&](int n) {
      return facts.IsElementwise(n) && !facts.view[n] && facts.ResultOf(n).type.shape == shape;
    });
    if (table_.Append(group, diamond)) return true;
  }
  return false;
}

}  // namespace diapason
