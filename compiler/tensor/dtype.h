// Element types of tensors and expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace diapason {

// The numbers are stored in records and packages: never renumber.
enum class DType : uint8_t {
  kFloat32 = 1,
  kFloat16 = 2,
  kFloat64 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kBool = 6,
  kInt8 = 7,
  kUint8 = 8,
  kBfloat16 = 9,
};

absl::Span<const DType> AllDTypes();
// Whether a number that was stored is that of a type.
bool IsDType(int64_t number);
// Size of one element in bytes.
int BytesOf(DType dtype);
bool IsFloat(DType dtype);
// A float of 16 bits: so it lies in memory, and is computed with in float32.
bool IsNarrowFloat(DType dtype);
bool IsByte(DType dtype);  // an integer of 8 bits
// Between neighbouring numbers next to 1, of a narrow float; 0 of types that are computed with.
double SpacingOf(DType dtype);
// The largest number of a float type; of others, that of float64.
double LargestOf(DType dtype);
// "float32", "int64", ...
const char* NameOf(DType dtype);
// The inverse of NameOf; nothing for an unknown name.
std::optional<DType> DTypeFromName(const std::string& name);

}  // namespace diapason
