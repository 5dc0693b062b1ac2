#include "compiler/graph/grouping/row_fusion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace diapason {
namespace {

// Nodes of a chain up to the one in which all readers of its first result meet.
constexpr size_t kMaxChain = 24;

}  // namespace

void RowFusion::Opened(int group) {
  const int anchor = table_.group(group).anchor;
  if (anchor < 0) return;
  if (const std::optional<Rows> rows = RowsReducedBy(table_.network(), table_.network().nodes[anchor]))
    rows_[group] = *rows;
}

const Rows* RowFusion::RowsOf(int group) const {
  const auto it = rows_.find(group);
  return it == rows_.end() ? nullptr : &it->second;
}

bool RowFusion::JoinChain(const Node& node) {
  const Network& network = table_.network();
  for (int input : node.inputs) {
    const int group = table_.GroupThatEndsIn(input);
    const Rows* rows = RowsOf(group);
    if (rows == nullptr) continue;
    const std::vector<int64_t>& shape = network.tensors[input].type.shape;
    const std::vector<int> nodes =
        table_.NodesUpToMeeting(input, kMaxChain, [&](int n) { return GoesByRows(network, network.nodes[n], *rows); });
    // Nodes that only follow element by element are an epilogue.
    const bool changes = std::any_of(nodes.begin(), nodes.end(), [&](int n) {
      return table_.facts().ResultOf(n).type.shape != shape || table_.facts().IsAnchor(n);
    });
    if (!changes || !table_.Append(group, nodes)) continue;
    chains_.insert(group);
    return true;
  }
  return false;
}

// The product of one row that alone reads the row that a group makes, or -1.
int RowFusion::ProductOfRow(int group) const {
  const Rows* rows = RowsOf(group);
  if (rows == nullptr || table_.group(group).nodes.empty()) return -1;
  const Network& network = table_.network();
  const int last = table_.group(group).nodes.back(), reader = table_.facts().OnlyReader(last);
  if (reader < 0 || table_.group_of(reader) < 0) return -1;
  if (table_.group(table_.group_of(reader)).anchor != reader || !IsProductOfOneRow(network, network.nodes[reader]))
    return -1;
  const std::vector<int>& inputs = network.nodes[reader].inputs;
  const int row = network.nodes[last].output;
  return rows->AreAlongLastAxisOf(network.tensors[row].type.shape) && inputs[0] == row && inputs[1] != row ? reader
                                                                                                           : -1;
}

void RowFusion::JoinProducts() {
  for (int g = 0; g < table_.size(); ++g) {
    const int product = ProductOfRow(g);
    if (product < 0) continue;
    const int into = table_.group_of(product);
    if (!table_.MayHold(table_.group(g).nodes, table_.group(into).nodes)) continue;
    const int last = table_.group(g).nodes.back();
    const bool apart = table_.ModeOf(product) == FusionMode::kApart;  // of attention
    if (!apart) table_.AddOption(last, FusionMode::kInProduct);
    if (apart || table_.ModeOf(last) == FusionMode::kInProduct) table_.MoveNodes(g, into);
  }
}

}  // namespace diapason
