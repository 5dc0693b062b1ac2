// Which nodes of a network become one kernel: the groups that partition.h makes subgraphs of, and the options that
// fusion_choices.h chooses among.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/graph/network.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/recurrent_nodes.h"
#include "compiler/tensor/output_place.h"

namespace diapason {

// Nodes that become one kernel. Only the result of the last one is seen outside, and that of the node that follows it.
struct Group {
  std::vector<int> nodes;  // ascending; none: a copy of the tensor `copied`
  int anchor = -1;         // node, or -1
  int copied = -1;
  int order = 0;            // groups in this order are in an order of execution
  int output = -1;          // tensor that it writes: that of the last node, or one that this is a part of
  OutputPlace place;        // in which case: where
  bool recurrence = false;  // the nodes are RecurrentNodes: several products, and no anchor
  int follower = -1;        // a node that has sums of the result (run_sums), or -1
  bool operator==(const Group&) const = default;
};

// How a node is fused where there is a choice.
enum class FusionMode : uint8_t {
  kDefault,  // what GroupNodes prefers
  kKernel,   // a concatenation: a kernel of its own
  kInPlace,  // a concatenation: those that make its parts write them there; a kernel where that cannot be
  kApart,    // an element-wise node joins no group in front of it; a group that ends with it is not computed in its
             // reader; a product is no attention with the softmax and the product in front of it
  kShorterBranch,  // an element-wise node joins the anchor that ranks second (epilogue_fusion.h)
  kInReader,       // an element-wise node joins no group in front of it, and is computed in its reader
  kInProduct,      // reductions of one row (a normalization) are made again where a product reads the row
  kRecurrence,     // the result of a recurrence: one kernel for all its steps. The last mode
};
using FusionModes = std::map<int, FusionMode>;  // by node

// A node that could be fused in another mode.
struct FusionOption {
  int node = -1;
  FusionMode other = FusionMode::kDefault;
};

struct Grouping {
  std::vector<Group> groups;          // in order of execution
  std::map<int, int> alias_of;        // Partition::alias_of
  std::vector<FusionOption> options;  // in order of nodes
};

// What all groupings of a network ask its nodes: a large one is grouped once for each concatenation. The network is to
// outlive it, unchanged.
struct GroupingFacts {
  explicit GroupingFacts(const Network& network);
  bool IsAnchor(int node) const { return kind[node] == OperatorKind::kAnchor; }
  bool IsElementwise(int node) const { return kind[node] == OperatorKind::kElementwise; }
  const Tensor& ResultOf(int node) const { return network.tensors[network.nodes[node].output]; }
  // The one node that reads the result of a node, or -1 if there are several or none, or the network gives it out.
  int OnlyReader(int node) const;
  // Whether a node puts rows of two tensors one behind the other for a product of one row alone (a cache of keys and
  // the new ones), perhaps sliced or transposed: the product reads each element once, and may as well read it where it
  // is. (Behind a reshape, rows are found by divisions.)
  bool AppendsForOneRow(int node) const;

  const Network& network;
  std::vector<std::vector<int>> consumers;  // by tensor
  std::vector<int> producer;                // by tensor
  // By node.
  std::vector<OperatorKind> kind;
  std::vector<bool> view;  // needs no kernel
  std::vector<int> depth;  // anchors on the longest path to it, itself included
  std::vector<RecurrentNodes> recurrences;
};

// kDefault for a concatenation is kKernel.
Grouping GroupNodes(const GroupingFacts& facts, const FusionModes& modes);

}  // namespace diapason
