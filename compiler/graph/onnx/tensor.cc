#include "compiler/graph/onnx/tensor.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/open_beneath.h"
#include "compiler/graph/onnx/tensor_proto.h"
#include "compiler/graph/rank.h"
#include "google/protobuf/stubs/logging.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

static_assert(std::endian::native == std::endian::little, "raw data of ONNX is little-endian");

absl::Status Bad(const onnx::TensorProto& tensor, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", Printable(tensor.name()), "' ", why));
}

absl::StatusOr<int64_t> ElementsOf(const onnx::TensorProto& tensor) {
  if (tensor.dims_size() > static_cast<int>(kMaxRank)) {
    return Bad(tensor, absl::StrCat("has ", tensor.dims_size(), " dimensions, and ", kMaxRank, " are supported"));
  }
  int64_t elements = 1;
  for (int64_t extent : tensor.dims()) {
    if (extent < 0) return Bad(tensor, absl::StrCat("has an extent of ", extent));
    if (extent > kMostElements || elements > kMostElements / std::max<int64_t>(extent, 1))
      return Bad(tensor, "is too large");
    elements *= extent;
  }
  return elements;
}

// How a narrow type is laid out in a file. Numbers of onnx.proto: Debian's knows those up to bfloat16 only.
struct NarrowType {
  int data_type;
  const char* name;
  DType storage;
  int bits;
};

constexpr NarrowType kNarrowTypes[] = {
    {4, "uint16", DType::kInt32, 16},         {5, "int16", DType::kInt32, 16},
    {12, "uint32", DType::kInt64, 32},        {13, "uint64", DType::kInt64, 64},
    {17, "float8e4m3fn", DType::kFloat32, 8}, {18, "float8e4m3fnuz", DType::kFloat32, 8},
    {19, "float8e5m2", DType::kFloat32, 8},   {20, "float8e5m2fnuz", DType::kFloat32, 8},
    {21, "uint4", DType::kUint8, 4},          {22, "int4", DType::kInt8, 4},
    {23, "float4e2m1", DType::kFloat32, 4},   {24, "float8e8m0", DType::kFloat32, 8},
    {25, "uint2", DType::kUint8, 2},          {26, "int2", DType::kInt8, 2}};

const NarrowType* NarrowTypeOf(int data_type) {
  for (const NarrowType& type : kNarrowTypes)
    if (type.data_type == data_type) return &type;
  return nullptr;
}

// A small float from its bits: a sign, `exponent` bits, `mantissa` bits.
double SmallFloat(uint32_t bits, int exponent, int mantissa, int bias) {
  const int e = static_cast<int>(bits >> mantissa) & ((1 << exponent) - 1);
  const double fraction = bits & ((1u << mantissa) - 1);
  const double value =
      e == 0 ? std::ldexp(fraction, 1 - bias - mantissa) : std::ldexp(fraction + (1 << mantissa), e - bias - mantissa);
  return (bits >> (exponent + mantissa)) != 0 ? -value : value;
}

// The value that the bits of a narrow type stand for, in its storage.
void SetNarrow(const NarrowType& type, uint64_t bits, int64_t at, Array& array) {
  const std::string_view name = type.name;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  const uint32_t low = static_cast<uint32_t>(bits);
  if (name == "float8e4m3fn") {
    array.set(at, (low & 0x7f) == 0x7f ? kNan : SmallFloat(low, 4, 3, 7));
  } else if (name == "float8e4m3fnuz") {
    array.set(at, low == 0x80 ? kNan : SmallFloat(low, 4, 3, 8));
  } else if (name == "float8e5m2") {
    const bool special = (low & 0x7c) == 0x7c;
    array.set(at, !special            ? SmallFloat(low, 5, 2, 15)
                  : (low & 3) != 0    ? kNan
                  : (low & 0x80) != 0 ? -kInfinity
                                      : kInfinity);
  } else if (name == "float8e5m2fnuz") {
    array.set(at, low == 0x80 ? kNan : SmallFloat(low, 5, 2, 16));
  } else if (name == "float8e8m0") {  // powers of two, as scales have
    array.set(at, low == 0xff ? kNan : std::ldexp(1.0, static_cast<int>(low) - 127));
  } else if (name == "float4e2m1") {
    array.set(at, SmallFloat(low, 2, 1, 1));
  } else {
    const bool is_signed = name[0] == 'i';
    const int64_t value = static_cast<int64_t>(bits);
    array.set_int(at, is_signed && (bits >> (type.bits - 1)) != 0 ? value - (int64_t{1} << type.bits) : value);
  }
}

// Where data outside of the model's file are.
struct ExternalData {
  std::string location;  // below the model's folder
  int64_t offset = 0;
  int64_t length = -1;  // -1: to the end of the file
};

absl::StatusOr<ExternalData> ExternalDataOf(const onnx::TensorProto& tensor) {
  ExternalData data;
  std::string location;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    int64_t* number = entry.key() == "offset" ? &data.offset : entry.key() == "length" ? &data.length : nullptr;
    if (entry.key() == "location") location = entry.value();
    if (number && (!absl::SimpleAtoi(entry.value(), number) || *number < 0)) {
      return Bad(tensor, absl::StrCat("has external data with ", entry.key(), " '", Printable(entry.value()),
                                      "', which is no size"));
    }
  }
  data.location = location;
  return data;
}

// `bytes` of data that lie outside.
absl::Status ReadExternal(const onnx::TensorProto& tensor, int64_t bytes, const std::string& directory,
                          std::vector<uint8_t>& out) {
  ASSIGN_OR_RETURN(ExternalData data, ExternalDataOf(tensor));
  const std::string where = absl::StrCat("'", Printable(data.location), "'");
  const absl::StatusOr<OpenedFile> file = OpenBeneath(directory, data.location);
  if (absl::IsInvalidArgument(file.status()))
    return Bad(tensor, absl::StrCat("has external data in ", where, ", which ", file.status().message()));
  if (!file.ok())
    return Bad(tensor, absl::StrCat("has its data in ", where, ", which cannot be read: ", file.status().message()));
  const int64_t size = file->size();
  if (data.offset > size || size - data.offset < bytes || (data.length >= 0 && data.length != bytes)) {
    return Bad(tensor, absl::StrCat("needs ", bytes, " bytes at ", data.offset, " of ", where, ", which has ", size,
                                    data.length >= 0 ? absl::StrCat(" (the model says ", data.length, ")") : ""));
  }
  out.resize(bytes);
  if (const absl::Status read = file->ReadAt(data.offset, out.data(), bytes); !read.ok())
    return Bad(tensor, absl::StrCat("has its data in ", where, ", which cannot be read: ", read.message()));
  return absl::OkStatus();
}

// Narrow types stand in int32_data (packed as in raw data where several share a byte), unsigned ones of 32 bits and
// more in uint64_data.
absl::StatusOr<std::vector<uint8_t>> NarrowTypedBytes(const onnx::TensorProto& tensor, const NarrowType& type,
                                                      int64_t bytes) {
  const bool wide = type.bits >= 32;
  const int64_t width = std::max(type.bits / 8, 1), count = wide ? tensor.uint64_data_size() : tensor.int32_data_size();
  if (count * width != bytes) {
    return Bad(tensor, absl::StrCat("has ", count, " numbers of data where its shape asks for ", bytes / width));
  }
  std::vector<uint8_t> out(bytes);
  for (int64_t i = 0; i < count; ++i) {
    const int at = static_cast<int>(i);
    const uint64_t bits = wide ? tensor.uint64_data(at) : static_cast<uint32_t>(tensor.int32_data(at));
    std::memcpy(out.data() + i * width, &bits, width);
  }
  return out;
}

absl::StatusOr<Array> ReadNarrow(const onnx::TensorProto& tensor, const NarrowType& type, int64_t elements,
                                 const std::string& directory) {
  const int64_t bytes = (elements * type.bits + 7) / 8;
  std::vector<uint8_t> data;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    RETURN_IF_ERROR(ReadExternal(tensor, bytes, directory, data));
  } else if (tensor.has_raw_data()) {
    const int64_t given = static_cast<int64_t>(tensor.raw_data().size());
    if (given != bytes)
      return Bad(tensor, absl::StrCat("has ", given, " bytes of data where its shape asks for ", bytes));
    data.assign(tensor.raw_data().begin(), tensor.raw_data().end());
  } else {
    ASSIGN_OR_RETURN(data, NarrowTypedBytes(tensor, type, bytes));
  }
  Array array(type.storage, {tensor.dims().begin(), tensor.dims().end()});
  for (int64_t i = 0; i < elements; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, data.data() + i * type.bits / 8, std::max(type.bits / 8, 1));
    if (type.bits < 8) bits = bits >> (i * type.bits % 8) & ((1u << type.bits) - 1);
    if (type.bits == 64 && bits >> 63 != 0)
      return Bad(tensor, "has a number of type uint64 above 2^63, which is not supported");
    SetNarrow(type, bits, i, array);
  }
  return array;
}

// Types of less than 4 bytes stand in int32_data, floats of 16 bits as their bits.
absl::StatusOr<Array> ReadTyped(const onnx::TensorProto& tensor, DType dtype, int64_t elements) {
  int64_t count = dtype == DType::kFloat32   ? tensor.float_data_size()
                  : dtype == DType::kFloat64 ? tensor.double_data_size()
                  : dtype == DType::kInt64   ? tensor.int64_data_size()
                                             : tensor.int32_data_size();
  if (count != elements) {
    return Bad(tensor, absl::StrCat("has ", count, " elements of data where its shape asks for ", elements));
  }
  Array array(dtype, {tensor.dims().begin(), tensor.dims().end()});
  for (int64_t i = 0; i < elements; ++i) {
    int at = static_cast<int>(i);
    switch (dtype) {
      case DType::kFloat32: array.as<float>()[i] = tensor.float_data(at); break;
      case DType::kFloat64: array.as<double>()[i] = tensor.double_data(at); break;
      case DType::kInt64: array.as<int64_t>()[i] = tensor.int64_data(at); break;
      case DType::kFloat16:
      case DType::kBfloat16: array.as<uint16_t>()[i] = static_cast<uint16_t>(tensor.int32_data(at)); break;
      default: array.set_int(i, tensor.int32_data(at));
    }
  }
  return array;
}

absl::StatusOr<Array> ReadRaw(const onnx::TensorProto& tensor, DType dtype, int64_t elements) {
  int64_t bytes = elements * BytesOf(dtype), given = static_cast<int64_t>(tensor.raw_data().size());
  if (given != bytes) {
    return Bad(tensor, absl::StrCat("has ", given, " bytes of data where its shape asks for ", bytes));
  }
  Array array(dtype, {tensor.dims().begin(), tensor.dims().end()});
  if (bytes > 0) std::memcpy(array.data.data(), tensor.raw_data().data(), bytes);
  return array;
}

}  // namespace

absl::StatusOr<DType> DTypeOfOnnx(int data_type) {
  switch (data_type) {
    case onnx::TensorProto::FLOAT: return DType::kFloat32;
    case onnx::TensorProto::FLOAT16: return DType::kFloat16;
    case onnx::TensorProto::BFLOAT16: return DType::kBfloat16;
    case onnx::TensorProto::DOUBLE: return DType::kFloat64;
    case onnx::TensorProto::INT32: return DType::kInt32;
    case onnx::TensorProto::INT64: return DType::kInt64;
    case onnx::TensorProto::BOOL: return DType::kBool;
    case onnx::TensorProto::INT8: return DType::kInt8;
    case onnx::TensorProto::UINT8: return DType::kUint8;
    default: break;
  }
  std::string name = onnx::TensorProto::DataType_IsValid(data_type)
                         ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(data_type))
                         : absl::StrCat("number ", data_type);
  return absl::InvalidArgumentError(absl::StrCat("has type ", name, "; bool, integers and floats are supported"));
}

std::string NarrowNameOfOnnx(int data_type) {
  const NarrowType* narrow = NarrowTypeOf(data_type);
  return narrow ? narrow->name : "";
}

absl::StatusOr<DType> StorageOfOnnx(int data_type) {
  const NarrowType* narrow = NarrowTypeOf(data_type);
  if (narrow) return narrow->storage;
  return DTypeOfOnnx(data_type);
}

absl::StatusOr<Array> ArrayOfOnnx(const onnx::TensorProto& tensor, const std::string& directory) {
  absl::StatusOr<DType> dtype = StorageOfOnnx(tensor.data_type());
  if (!dtype.ok()) return Bad(tensor, std::string(dtype.status().message()));
  ASSIGN_OR_RETURN(int64_t elements, ElementsOf(tensor));
  if (tensor.has_segment()) return Bad(tensor, "is one segment of a larger one, which is not supported");
  if (const NarrowType* narrow = NarrowTypeOf(tensor.data_type()))
    return ReadNarrow(tensor, *narrow, elements, directory);
  absl::StatusOr<Array> array;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    array = Array();
    array->dtype = *dtype;
    array->shape.assign(tensor.dims().begin(), tensor.dims().end());
    RETURN_IF_ERROR(ReadExternal(tensor, elements * BytesOf(*dtype), directory, array->data));
  } else {
    array = tensor.has_raw_data() ? ReadRaw(tensor, *dtype, elements) : ReadTyped(tensor, *dtype, elements);
  }
  if (array.ok() && array->dtype == DType::kBool) {
    for (uint8_t& value : array->data) value = value != 0;
  }
  return array;
}

absl::StatusOr<Array> ArrayOfSparseOnnx(const onnx::SparseTensorProto& sparse, const std::string& directory) {
  constexpr int64_t kMostOfSparse = int64_t{1} << 28;
  const onnx::TensorProto& tensor = sparse.values();
  ASSIGN_OR_RETURN(const Array values, ArrayOfOnnx(tensor, directory));
  ASSIGN_OR_RETURN(const Array indices, ArrayOfOnnx(sparse.indices(), directory));
  onnx::TensorProto shape;
  *shape.mutable_dims() = sparse.dims();
  shape.set_name(tensor.name());
  ASSIGN_OR_RETURN(const int64_t elements, ElementsOf(shape));
  if (elements > kMostOfSparse)
    return Bad(tensor, absl::StrCat("is sparse and has more than ", kMostOfSparse, " elements"));
  const int64_t count = values.elements(), rank = sparse.dims_size();
  const bool is_list = indices.shape == std::vector<int64_t>{count};
  if (values.shape.size() != 1 || indices.dtype != DType::kInt64 ||
      (!is_list && indices.shape != std::vector<int64_t>{count, rank}))
    return Bad(tensor, "is sparse and has indices that do not fit its values");
  Array dense(values.dtype, {sparse.dims().begin(), sparse.dims().end()});
  const int64_t bytes = BytesOf(dense.dtype);
  for (int64_t k = 0; k < count; ++k) {
    int64_t at = is_list ? indices.int_at(k) : 0;
    bool inside = at >= 0 && at < elements;
    for (int64_t d = 0; !is_list && d < rank; ++d) {
      const int64_t index = indices.int_at(k * rank + d), extent = dense.shape[d];
      inside = inside && index >= 0 && index < extent;
      at = at * extent + (inside ? index : 0);
    }
    if (!inside) return Bad(tensor, absl::StrCat("is sparse and has an index outside (that of value ", k, ")"));
    std::memcpy(dense.data.data() + at * bytes, values.data.data() + k * bytes, bytes);
  }
  return dense;
}

absl::StatusOr<Array> ReadOnnxTensor(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("cannot read '", path, "': ", std::strerror(errno), "; name a tensor's file, as .npy or .pb"));
  google::protobuf::LogSilencer silence;
  onnx::TensorProto tensor;
  if (!tensor.ParseFromIstream(&file) || tensor.data_type() == onnx::TensorProto::UNDEFINED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' is no ONNX tensor, or it was cut off; give a file with one TensorProto, or a .npy file"));
  }
  absl::StatusOr<Array> array = ArrayOfOnnx(tensor, std::filesystem::path(path).parent_path().string());
  if (!array.ok()) return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", array.status().message()));
  return array;
}

}  // namespace diapason
