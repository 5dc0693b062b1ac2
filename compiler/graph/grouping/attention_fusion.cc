#include "compiler/graph/grouping/attention_fusion.h"

#include <vector>

namespace diapason {

// The group of the softmax along rows whose result product `n` alone reads, as its first operand; or -1.
int AttentionFusion::SoftmaxReadBy(int n) const {
  const Network& network = table_.network();
  const Node& node = network.nodes[n];
  if (node.inputs[0] == node.inputs[1]) return -1;
  const int group = table_.GroupReadOnlyBy(node.inputs[0], [&](int reader) { return reader == n; });
  const Rows* rows = rows_.RowsOf(group);
  if (rows == nullptr || !rows->AreAlongLastAxisOf(network.tensors[node.inputs[0]].type.shape)) return -1;
  // Another chain of reductions over the rows will do as well as a softmax.
  return rows_.IsChain(group) || network.nodes[table_.group(group).anchor].op == "softmax" ? group : -1;
}

// The group of the product whose result a softmax alone reads, or -1.
int AttentionFusion::ScoresReadBy(int softmax) const {
  const Network& network = table_.network();
  const int scores = network.nodes[table_.group(softmax).anchor].inputs[0];
  const int group = table_.GroupReadOnlyBy(scores, [&](int reader) { return table_.group_of(reader) == softmax; });
  if (group < 0 || group == softmax || IsAttention(group)) return -1;
  const int anchor = table_.group(group).anchor;
  return anchor >= 0 && network.nodes[anchor].op == "matmul" ? group : -1;
}

bool AttentionFusion::Join(int n) {
  if (table_.network().nodes[n].op != "matmul") return false;
  const int softmax = SoftmaxReadBy(n);
  const int scores = softmax < 0 ? -1 : ScoresReadBy(softmax);
  if (scores < 0) return false;
  std::vector<int> nodes = table_.group(scores).nodes;
  nodes.insert(nodes.end(), table_.group(softmax).nodes.begin(), table_.group(softmax).nodes.end());
  if (!table_.MayHold(nodes, {n})) return false;
  const bool apart = table_.ModeOf(n) == FusionMode::kApart;
  table_.AddOption(n, apart ? FusionMode::kDefault : FusionMode::kApart);
  if (apart) return false;
  attentions_.insert(table_.Merge(scores, softmax, n));
  rows_.Forget(softmax);
  return true;
}

bool AttentionFusion::JoinTransposition(int n) {
  const Node& node = table_.network().nodes[n];
  if (node.op != "transpose") return false;
  const int group = table_.GroupReadOnlyBy(node.inputs[0], [&](int reader) { return reader == n; });
  return group >= 0 && IsAttention(group) && table_.Append(group, {n});
}

}  // namespace diapason
