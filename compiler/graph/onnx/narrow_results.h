// Types of ONNX that are stored in wider ones.
#pragma once

#include "absl/status/status.h"
#include "compiler/graph/onnx/node_importer.h"

namespace diapason {

// Rounds or wraps results of a node that stand for a narrow type (ImportedTensor::narrow), and marks them so.
// REQUIRES: NodeImporter::Finish was OK.
absl::Status NarrowResults(ImportState& state, NodeImporter& importer);

}  // namespace diapason
