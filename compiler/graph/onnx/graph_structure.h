// Checks of an ONNX graph that need no knowledge of operators.
#pragma once

#include "absl/status/status.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// Puts nodes behind those they read, as far as there is no cycle; those that stand in order already stay.
void SortOnnxNodes(OnnxModel& model);

// Every name has one origin (input, initializer or result of a node), every name that is read has one, there is no
// cycle, there are outputs. InvalidArgument names the node.
// REQUIRES: nodes were sorted.
absl::Status CheckOnnxStructure(const OnnxModel& model);

}  // namespace diapason
