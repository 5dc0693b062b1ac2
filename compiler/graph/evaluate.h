// Evaluation of networks by the interpreter, node after node: constant folding and tests. For small tensors; the
// compiled reference of whole networks is compiler/codegen/reference.h over the partition's dags.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"

namespace diapason {

// The result of one operator. Errors as InferNode's.
absl::StatusOr<Array> EvaluateOperator(const std::string& op, const std::vector<Array>& inputs,
                                       const Attributes& attributes);

// The same of a node of a network, whose inputs are constants and whose output has its type.
absl::StatusOr<Array> EvaluateNode(const Network& network, const Node& node);

// Outputs in order; inputs in the order of network.inputs. InvalidArgument names an input of wrong type or shape.
absl::StatusOr<std::vector<Array>> EvaluateNetwork(const Network& network, const std::vector<Array>& inputs);

// The same by the subgraphs of a partition of the network.
absl::StatusOr<std::vector<Array>> EvaluatePartition(const Network& network, const Partition& partition,
                                                     const std::vector<Array>& inputs);

}  // namespace diapason
