// The shapes of a model's inputs with what it leaves open fixed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// In the order of model.inputs: options.input_shapes where given, else the model's shape with its first extent replaced
// by options.batch (1 if the model leaves it open and the option is 0). A named open extent that one input fixes holds
// for all inputs. InvalidArgument for extents that stay open, ranks that differ, and options for inputs that the model
// does not have.
absl::StatusOr<std::vector<std::vector<int64_t>>> FixInputShapes(const OnnxModel& model, const ModelOptions& options);

}  // namespace diapason
