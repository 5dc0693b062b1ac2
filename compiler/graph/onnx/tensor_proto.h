// Conversion of TensorProto, for the files that see ONNX's protobufs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"

namespace onnx {
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace diapason {

// Our type for TensorProto::DataType. InvalidArgument names a type that we do not have ("uint16").
absl::StatusOr<DType> DTypeOfOnnx(int data_type);

// Types that we do not have are kept in one that holds all of their values: int16 and uint16 in int32, uint32 and
// uint64 (below 2^63) in int64, integers of 2 and 4 bits in int8 and uint8, floats of 8 and 4 bits in float32. Their
// results are rounded or wrapped as the narrow type is (the operator "narrow"), so that values are those of ONNX.
//
// The name of such a type ("int16"), or nothing for one that we have or do not know.
std::string NarrowNameOfOnnx(int data_type);
// Our type, or the wider one. InvalidArgument as DTypeOfOnnx.
absl::StatusOr<DType> StorageOfOnnx(int data_type);

// The value of a tensor, in whatever field it stands; data outside of the file is read from `directory`. Nothing is
// allocated that the data do not fill. Narrow types become wider ones. InvalidArgument says what is wrong, beginning
// with "tensor 'NAME' ".
absl::StatusOr<Array> ArrayOfOnnx(const onnx::TensorProto& tensor, const std::string& directory);

// The same of a sparse tensor, whose name is that of its values, with zeros for the elements that it leaves out. It may
// have 2^28 elements, however few the data are.
absl::StatusOr<Array> ArrayOfSparseOnnx(const onnx::SparseTensorProto& sparse, const std::string& directory);

}  // namespace diapason
