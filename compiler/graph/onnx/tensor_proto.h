// Conversion of TensorProto, for the files that see ONNX's protobufs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"

namespace onnx {
class TensorProto;
}

namespace diapason {

// Our type for TensorProto::DataType. InvalidArgument names a type that we do not have ("uint16").
absl::StatusOr<DType> DTypeOfOnnx(int data_type);

// The value of a tensor, in whatever field it stands; data outside of the file is read from `directory`. Nothing is
// allocated that the data do not fill. InvalidArgument says what is wrong, beginning with "tensor 'NAME' ".
absl::StatusOr<Array> ArrayOfOnnx(const onnx::TensorProto& tensor, const std::string& directory);

}  // namespace diapason
