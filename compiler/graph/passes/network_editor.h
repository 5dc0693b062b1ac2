// Changes the nodes of a network one by one, keeping up to date who computes and who reads each tensor, and which nodes
// are to be looked at again since something near them changed. A rewrite that looks at one node at a time takes effort
// in proportion to the nodes and the changes that way.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/network.h"
#include "compiler/tensor/array.h"

namespace diapason {

// Nodes keep their places while they are changed: one that was removed has no operator until Compact. Not safe for
// several threads. The network outlives it, and nobody else changes its nodes, inputs or outputs meanwhile.
class NetworkEditor {
 public:
  // Each node is to be looked at once. REQUIRES: the network is valid.
  explicit NetworkEditor(Network& network);

  Network& network() { return network_; }
  // Operator, attributes and the types of results may be changed here, inputs and outputs only by the functions below.
  // Who changes a node without these calls LookAgainAround.
  Node& node(size_t n) { return network_.nodes[n]; }
  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }
  // The value of a tensor; null where it is no constant.
  const Array* constant(int tensor) const { return network_.tensors[tensor].data.get(); }
  // The node that computes a tensor; -1: an input or a constant.
  int producer(int tensor) const { return producers_[tensor]; }
  // The same as a node; null where there is none, or where its operator is not `op`. An empty `op` stands for all.
  const Node* ProducerOf(int tensor, const std::string& op = "") const;
  // One node reads the tensor, and it is no output of the network.
  bool IsReadOnce(int tensor) const { return consumers_[tensor].size() == 1 && !is_output_[tensor]; }

  // A new constant, read by nobody yet. `name` is for people.
  int AddConstant(const std::string& name, Array value);
  // Node n reads these instead. Nodes whose results nobody reads any more are removed.
  void SetInputs(size_t n, std::vector<int> inputs);
  // Node n computes `tensor`, so far the result of another node, instead of its own.
  void SetOutput(size_t n, int tensor);
  // All nodes that read `from` read `to`.
  void MoveReaders(int from, int to);
  // Takes node n out, and nodes that only it read. REQUIRES: nobody reads its result, or another node computes it.
  void Remove(size_t n);
  // Takes out node n, whose result equals `input`. Returns false, and changes nothing, where both are outputs of the
  // network, or one of them is an output and the other an input or a constant: an output needs a node of its own.
  bool ReplaceBy(size_t n, int input);

  // Node n, and those that compute or read its result, are to be looked at.
  void LookAgainAround(size_t n);
  // The nodes that compute or read a tensor are to be looked at.
  void LookAgain(int tensor);
  // The first node that is to be looked at; -1: there is none.
  int Next() const { return open_.empty() ? -1 : static_cast<int>(*open_.begin()); }
  // Nothing more can be done with node n until something near it changes.
  void Done(size_t n) { open_.erase(n); }

  // Takes the places of removed nodes out of the network. Nothing else may be called afterwards.
  void Compact();

 private:
  void RemoveUnread(int tensor);

  Network& network_;
  std::vector<std::vector<int>> consumers_;  // by tensor
  std::vector<int> producers_;               // by tensor
  std::vector<bool> is_output_;              // by tensor
  std::set<size_t> open_;                    // nodes to look at
};

}  // namespace diapason
