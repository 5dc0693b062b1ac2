// Readable names of tasks.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/network.h"

namespace diapason {

// "conv2d_3x3_s1_56x56x64_64_bias_add_relu": the anchor with its window, the shape of its input (the batch only if it
// is not 1), its output channels, and the operators after it. Operators before the anchor come first; "nchw" among them
// means that the anchor reads an NCHW image. For a group without an anchor: the operators in order, then the shape.
// Narrow floats are named, float32 is not.
std::string TaskName(const Network& network, const std::vector<int>& nodes, int anchor);

// Of a whole recurrence with that node as its result: "recurrence_32x1x128", its shape.
std::string RecurrenceName(const Network& network, int result);

// Of a copy of a tensor: "copy_56x56x64".
std::string CopyName(const Network& network, int tensor);

}  // namespace diapason
