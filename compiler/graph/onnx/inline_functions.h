// Functions of a model: operators that it defines by others.
#pragma once

#include "absl/status/status.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// Replaces each node that calls a function of the model by the function's nodes, under names of their own; also in the
// bodies of If, Loop and Scan. InvalidArgument if functions call each other in a circle, or grow beyond a million
// nodes.
absl::Status InlineFunctions(OnnxModel& model);

}  // namespace diapason
