// Files of tensors, which `run --input` reads and `--output-dir` writes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"

namespace diapason::api {

// Reads NumPy's .npy or an ONNX TensorProto (.pb). NotFound: the file cannot be read; DataLoss and InvalidArgument as
// of ParseNpy. Messages name the file.
absl::StatusOr<Array> ReadTensorFile(const std::string& path);
// Writes .npy. Error messages name the file and the system's reason.
absl::Status WriteNpyFile(const std::string& path, const Array& array);

}  // namespace diapason::api
