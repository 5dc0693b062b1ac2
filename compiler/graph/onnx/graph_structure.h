// Checks of an ONNX graph that need no knowledge of operators.
#pragma once

#include "absl/status/status.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// Every name has one origin (input, initializer or result of a node), every name that is read has one, nodes stand
// behind those they read, there are outputs. InvalidArgument names the node and tells a cycle from a wrong order.
absl::Status CheckOnnxStructure(const OnnxModel& model);

}  // namespace diapason
