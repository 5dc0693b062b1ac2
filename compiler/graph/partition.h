// Partitions a network into subgraphs, each computed by one kernel, and equal subgraphs into weighted tuning tasks (the
// fusion of TVM's Relay FuseOps and the task extraction of Ansor).
//
// A subgraph has one anchor (convolution, product, pool, reduction, softmax), reductions of the same rows that follow
// one another (row_nodes.h), or none. In front of the anchor stand cheap data movements and elementwise operators with
// no other reader; behind it elementwise operators (bias, normalisation, residual, activation) as long as each
// intermediate has one reader, or all its readers meet again (x * sigmoid(x)). A residual addition joins the anchor
// that is deeper in the network (the main path, not its shortcut).
//
// A concatenation needs no kernel where those that make its parts can write them where they belong: parts that nobody
// else reads. One part that cannot be written so (an input, a constant, a tensor that others read too) is copied by a
// kernel; with more of them, or where a kernel is needed for what follows anyway, the concatenation is a kernel of its
// own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/network.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/output_place.h"

namespace diapason {

struct Subgraph {
  // The same stages, numbers and names as its task's dag: one compiled program serves all occurrences, with buffers
  // bound by position.
  ComputeDag dag;
  std::vector<int> inputs;   // tensor id of each placeholder, in the order of dag.inputs(); constants included
  std::vector<int> outputs;  // tensor id of each output, in the order of dag.outputs(); one today. With a place: the
                             // larger tensor
  std::vector<int> nodes;    // the nodes it covers, in order; none: a copy of a part of a concatenation
  int task = -1;             // index into Partition::tasks
  int program = -1;          // index into Partition::programs
};

struct Task {
  // For people, after the operators of the first occurrence (an equal one may be made of others: a clip at 0 is a
  // relu); unique in a partition: "conv2d_3x3_s1_56x56x64_64_bias_add_relu".
  std::string name;
  ComputeDag dag;
  int weight = 0;  // occurrences in the network
  std::string workload_key;
  // Of the same task without bounds of factors (factor_bounds.h), whose records fit this one too; empty: it has none.
  std::string unbounded_key{};
};

// What is compiled: a task, by where its results go. Records are those of the task: the places differ in the
// indices of stores alone.
struct PlacedTask {
  int task = -1;
  OutputPlace place;
  int weight = 0;  // occurrences in the network
};

struct Partition {
  std::vector<Subgraph> subgraphs;   // in an order of execution
  std::vector<Task> tasks;           // in order of first occurrence
  std::vector<PlacedTask> programs;  // by task, then in order of first occurrence
  // Views: a tensor that is the same memory as another one (reshape, flatten, ...). The value is the tensor that owns
  // the memory: result of a subgraph, network input or constant; never itself an alias. Outputs of the network may be
  // aliases, constants or inputs: whoever runs it hands out a copy.
  std::map<int, int> alias_of;

  int Owner(int tensor) const {
    auto it = alias_of.find(tensor);
    return it == alias_of.end() ? tensor : it->second;
  }
};

// REQUIRES: network.Validate() is OK. Every node is in exactly one subgraph, a view, or a concatenation in place.
// InvalidArgument if a node's expression cannot be built (names it).
absl::StatusOr<Partition> PartitionNetwork(const Network& network);

}  // namespace diapason
