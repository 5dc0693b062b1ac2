#include "compiler/tensor/dtype.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "base/check.h"

namespace diapason {
namespace {

struct DTypeInfo {
  DType dtype;
  const char* name;
  int bytes;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::kFloat32, "float32", 4}, {DType::kFloat16, "float16", 2}, {DType::kFloat64, "float64", 8},
    {DType::kInt32, "int32", 4},     {DType::kInt64, "int64", 8},     {DType::kBool, "bool", 1},
    {DType::kInt8, "int8", 1},       {DType::kUint8, "uint8", 1},     {DType::kBfloat16, "bfloat16", 2},
};

const DTypeInfo& InfoOf(DType dtype) {
  for (const DTypeInfo& info : kDTypes)
    if (info.dtype == dtype) return info;
  internal::CheckFailed(__FILE__, __LINE__, "known dtype", std::to_string(static_cast<int>(dtype)));
}

}  // namespace

absl::Span<const DType> AllDTypes() {
  static const auto& all = *new std::vector<DType>([] {
    std::vector<DType> dtypes;
    for (const DTypeInfo& info : kDTypes) dtypes.push_back(info.dtype);
    return dtypes;
  }());
  return all;
}

bool IsDType(int64_t number) {
  return std::any_of(std::begin(kDTypes), std::end(kDTypes),
                     [&](const DTypeInfo& info) { return static_cast<int64_t>(info.dtype) == number; });
}

int BytesOf(DType dtype) { return InfoOf(dtype).bytes; }

bool IsFloat(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64 || IsNarrowFloat(dtype); }

bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUint8; }
bool IsNarrowFloat(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }

double SpacingOf(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-10 : dtype == DType::kBfloat16 ? 0x1p-7 : 0; }

double LargestOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 65504;
    case DType::kBfloat16: return 0x1.fep127;
    case DType::kFloat32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

const char* NameOf(DType dtype) { return InfoOf(dtype).name; }

std::optional<DType> DTypeFromName(const std::string& name) {
  for (const DTypeInfo& info : kDTypes)
    if (name == info.name) return info.dtype;
  return std::nullopt;
}

}  // namespace diapason
