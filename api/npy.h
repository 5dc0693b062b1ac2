// NumPy's .npy files (format versions 1 to 3) as arrays.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"

namespace diapason::api {

// Errors name `name`: DataLoss for bytes that are no whole .npy file, InvalidArgument for an element type that no
// tensor has (complex, text, big-endian, ...) . Arrays in Fortran order are turned into row-major ones.
absl::StatusOr<Array> ParseNpy(const std::string& bytes, const std::string& name);
// bfloat16, which NumPy has not, is written as float32.
std::string SerializeNpy(const Array& array);

}  // namespace diapason::api
