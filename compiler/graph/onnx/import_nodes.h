// The nodes of a graph, or of a body in one, by the rules of rules/.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/graph/onnx/node_importer.h"

namespace diapason {

// InvalidArgument names, all at once, the operators that have no rule.
absl::Status CheckOnnxOperators(const OnnxModel& model);

// Adds the names that the nodes, and the bodies that they hold, read or give as results of bodies.
void AddReadNames(const std::vector<OnnxNode>& nodes, std::set<std::string>& names);

// Adds the nodes to the network, or computes them. InvalidArgument names the node and its operator.
// REQUIRES: state.model is set, and CheckOnnxOperators accepted it.
absl::Status ImportOnnxNodes(const std::vector<OnnxNode>& nodes, ImportState& state);

}  // namespace diapason
