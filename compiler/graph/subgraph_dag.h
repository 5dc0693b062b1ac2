// The ComputeDag of a group of nodes, in canonical order.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/factor_bounds.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"

namespace diapason {

// Stages are numbered in the order in which expressions meet them from the result on (the operand that the group
// computes first, where an operator is commutative), and named by operators: neither depends on names or on the order
// of nodes. `task` is not set. `follower`: a node whose result is a second one, and which reads the first one alone;
// -1: there is none. REQUIRES: only the results of the last node and the follower are read outside of `nodes`.
absl::StatusOr<Subgraph> BuildSubgraph(const Network& network, const std::vector<int>& nodes, int follower = -1);

// A copy of a tensor.
absl::StatusOr<Subgraph> CopySubgraph(const Network& network, int tensor);

// Either, as the group says, with these bounds of factors; its output is what the group writes. NameOf: of its task.
absl::StatusOr<Subgraph> SubgraphOf(const Network& network, const Group& group, const FactorBounds& bounds);
std::string NameOf(const Network& network, const Group& group);

}  // namespace diapason
