// The shapes of a model's inputs with what it leaves open fixed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// The symbol of a result whose number of rows only a run tells: the result's name with ".rows" behind.
std::string RowsSymbol(const OnnxNode& node);
// Those of the model's nodes that may need one, in bodies too.
std::set<std::string> RowsSymbols(const OnnxModel& model);

// "--dim seq=128", as a shell takes it, for messages.
std::string DimFlag(const std::string& symbol);

// In the order of model.inputs. What the model leaves open is a symbol with one size for all inputs: of options.dims,
// of options.input_shapes, for the first extent of an input of options.batch, else 1 there. Fixed extents are the
// model's, or those of options.input_shapes, and the first one options.batch unless that is 0. InvalidArgument for
// symbols without a size (all of them are named), sizes that contradict each other, ranks that differ, and options for
// inputs or symbols that the model does not have (RowsSymbols are such).
absl::StatusOr<std::vector<std::vector<int64_t>>> FixInputShapes(const OnnxModel& model, const ModelOptions& options);

// The inputs with the symbols of their axes; an open extent without a name has the symbol INPUT.AXIS. Fixed extents,
// and those of an input without a shape, have none.
std::vector<ModelInput> InputsWithSymbols(const OnnxModel& model, const ModelOptions& options);

}  // namespace diapason
