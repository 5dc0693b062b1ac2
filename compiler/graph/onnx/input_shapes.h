// The shapes of a model's inputs with what it leaves open fixed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// In the order of model.inputs. What the model leaves open is a symbol with one size for all inputs: of options.dims, of
// options.input_shapes, for the first extent of an input of options.batch, else 1 there. Fixed extents are the model's, or those of
// options.input_shapes, and the first one options.batch unless that is 0. InvalidArgument for symbols without a size (all of them are
// named), sizes that contradict each other, ranks that differ, and options for inputs or symbols that the model does not have.
absl::StatusOr<std::vector<std::vector<int64_t>>> FixInputShapes(const OnnxModel& model, const ModelOptions& options);

// The inputs with the symbols of their axes; an open extent without a name has the symbol INPUT.AXIS. Fixed extents, and those of an input
// without a shape, have none.
std::vector<ModelInput> InputsWithSymbols(const OnnxModel& model, const ModelOptions& options);

}  // namespace diapason
