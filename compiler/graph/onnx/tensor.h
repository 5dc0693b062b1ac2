// Tensors in files of ONNX's TensorProto, as inputs and expected outputs are handed around.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"

namespace diapason {

// NotFound if the file cannot be read; InvalidArgument, in one sentence that names the file, if it is no tensor, is cut
// off, or has a type that we do not have. A tensor may have no elements.
absl::StatusOr<Array> ReadOnnxTensor(const std::string& path);

}  // namespace diapason
