// Tracks rows of tensors whose number is data-dependent: results of NonZero, Compress and NonMaxSuppression.
//
// Without --dim, such a result has as many rows as there can be, and a list of flags says which of them are real, in
// order. Operators that treat rows independently pass the flags on; TopK, maxima and NonMaxSuppression skip rows that
// are not real; Concat concatenates the flags. So the filter in front of a detector's non-maximum suppression needs no
// numbers from the user, and no row moves.
//
// The number of rows (Shape) is a constant, computed as if all rows were real. It may only decide about shapes, about
// how many elements TopK takes at most, and about whether there are any rows. Indices from TopK and NonMaxSuppression
// count all rows, and may only index tensors with the same rows. Anything else is an error that asks for --dim.
//
// With --dim RESULT.rows=N, a result has N rows, of which the first ones are real: "bounded" rows. They are tracked
// too, so that what was filtered once can be filtered again (detectors in two stages). Where an operator cannot be
// tracked through, tracking stops, and the padding proof decides whether the other rows matter (service/importer.cc).
//
// Rows that a filter took from a tensor and that were treated independently may be put back by ScatterND or
// ScatterElements (regions of several feature levels).
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
// InvalidArgument for an output of the model with such rows, or with their number. Of bounded rows, those that are real
// must come first.
absl::Status CheckFoundRowsOfOutput(const ImportedTensor& output, ImportState& state);

}  // namespace diapason
