// Results whose number of rows only a run tells, of NonZero and Compress without --dim: they have all rows that there
// may be, with flags that say which are real, in order. Operators that treat rows apart pass the flags on; TopK, maxima
// and NonMaxSuppression leave out rows that are not real; Concat puts flags behind each other. So what a detector
// filters in front of its non-maximum suppression needs no numbers from the user, and no row moves.
//
// The number of rows (Shape) is a constant that is computed as if all rows were real. It may only decide about shapes,
// about how many elements TopK takes at most, and about whether there are any rows. Indices from TopK and
// NonMaxSuppression are places among all rows, and may only take elements of tensors with the same rows. Anything else
// is refused with what asks for --dim.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compiler/graph/onnx/node_importer.h"

namespace diapason {

// Before the rule of a node: hides rows that are not real from an operator that combines rows. InvalidArgument where
// the operator needs to know how many rows are real.
absl::Status HideFoundRows(NodeImporter& node);
// Behind it: says which rows of the results are real. `text` names the node in later errors.
absl::Status MarkFoundRows(NodeImporter& node, const std::string& text);
// InvalidArgument for an output of the model with such rows, or with their number.
absl::Status CheckFoundRowsOfOutput(const ImportedTensor& output);

}  // namespace diapason
