// Results whose number of rows only a run tells, of NonZero and Compress without --dim: they have all rows that there
// may be, with flags that say which are real, in order. Operators that treat rows apart pass the flags on; TopK, maxima
// and NonMaxSuppression leave out rows that are not real; Concat puts flags behind each other. So what a detector
// filters in front of its non-maximum suppression needs no numbers from the user, and no row moves.
//
// The number of rows (Shape) is a constant that is computed as if all rows were real. It may only decide about shapes,
// about how many elements TopK takes at most, and about whether there are any rows. Indices from TopK and
// NonMaxSuppression are places among all rows, and may only take elements of tensors with the same rows. Anything else
// is refused with what asks for --dim.
//
// Results whose room --dim gives are followed too, as "given" rows, of which the first ones are real: what was filtered
// once can be filtered again (a detector in two stages). Where they meet something else, they are let go: whether rows
// that are not real are harmless is then for the padding proof to say (service/importer.cc).
//
// Rows that a filter found at places of a tensor, and that were treated apart, may be put back there by ScatterND or
// ScatterElements (regions of several levels).
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
// For a value that becomes part of another one where nobody follows its rows. InvalidArgument if it has such rows.
absl::Status LoseFoundRows(const ImportedTensor& value, NodeImporter& node);
// InvalidArgument for an output of the model with such rows, or with their number. Of given rows, those that are real
// must come first.
absl::Status CheckFoundRowsOfOutput(const ImportedTensor& output, ImportState& state);

}  // namespace diapason
