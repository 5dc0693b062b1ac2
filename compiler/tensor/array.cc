#include "compiler/tensor/array.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace diapason {
namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

}  // namespace

Array::Array(DType dtype, std::vector<int64_t> shape)
    : dtype(dtype), shape(std::move(shape)), data(Product(this->shape) * BytesOf(dtype)) {}

Array Array::FromFloats(std::vector<int64_t> shape, const std::vector<float>& values) {
  Array array(DType::kFloat32, std::move(shape));
  DIAPASON_CHECK(array.data.size() == values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(array.data.data(), values.data(), array.data.size());
  return array;
}

int64_t Array::elements() const { return Product(shape); }

double Array::at(int64_t i) const {
  switch (dtype) {
    case DType::kFloat32: return as<float>()[i];
    case DType::kFloat16:
    case DType::kBfloat16: return NarrowToFloat(dtype, as<uint16_t>()[i]);
    case DType::kFloat64: return as<double>()[i];
    default: return static_cast<double>(int_at(i));
  }
}

void Array::set(int64_t i, double value) {
  switch (dtype) {
    case DType::kFloat32: as<float>()[i] = static_cast<float>(value); break;
    case DType::kFloat16:
    case DType::kBfloat16: as<uint16_t>()[i] = FloatToNarrow(dtype, static_cast<float>(value)); break;
    case DType::kFloat64: as<double>()[i] = value; break;
    case DType::kBool: data[i] = value != 0; break;
    default: set_int(i, static_cast<int64_t>(value));
  }
}

int64_t Array::int_at(int64_t i) const {
  switch (dtype) {
    case DType::kInt32: return as<int32_t>()[i];
    case DType::kInt64: return as<int64_t>()[i];
    case DType::kInt8: return as<int8_t>()[i];
    case DType::kBool:
    case DType::kUint8: return data[i];
    default: return static_cast<int64_t>(at(i));
  }
}

void Array::set_int(int64_t i, int64_t value) {
  switch (dtype) {
    case DType::kInt32: as<int32_t>()[i] = static_cast<int32_t>(value); break;
    case DType::kInt64: as<int64_t>()[i] = value; break;
    case DType::kInt8: as<int8_t>()[i] = static_cast<int8_t>(value); break;
    case DType::kUint8: data[i] = static_cast<uint8_t>(value); break;
    case DType::kBool: data[i] = value != 0; break;
    default: set(i, static_cast<double>(value));
  }
}

// The bits of a half, moved to where a float has its exponent and mantissa, are 2^-112 of its value, subnormal or not.
float HalfToFloat(uint16_t half) {
  const float magnitude = std::bit_cast<float>(static_cast<uint32_t>(half & 0x7fff) << 13) * 0x1p112f;
  const uint32_t bits = (half & 0x7c00) == 0x7c00 ? ((half & 0x3ff) != 0 ? 0x7fc00000u : 0x7f800000u)
                                                  : std::bit_cast<uint32_t>(magnitude);
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}

uint16_t FloatToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and above
  int shift;                                          // low bits of the significand that are rounded away
  uint32_t kept;
  if (magnitude >= 0x38800000) {  // normal halfs: from 2^-14
    shift = 13;
    kept = magnitude - 0x38000000;  // rebias the exponent from 127 to 15
  } else {
    shift = 126 - static_cast<int>(magnitude >> 23);  // subnormal: units of 2^-24
    if (shift > 25) return sign;
    kept = (magnitude & 0x7fffff) | 0x800000;
  }
  const uint32_t rounded = kept >> shift;
  const uint32_t rest = kept & ((1u << shift) - 1);
  const uint32_t half_way = 1u << (shift - 1);
  const bool up = rest > half_way || (rest == half_way && (rounded & 1) != 0);
  return sign | static_cast<uint16_t>(rounded + up);  // a carry runs into the exponent, up to infinity, as it should
}

float Bfloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // quiet
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float NarrowToFloat(DType dtype, uint16_t bits) {
  DIAPASON_CHECK_MSG(IsNarrowFloat(dtype), NameOf(dtype));
  return dtype == DType::kFloat16 ? HalfToFloat(bits) : Bfloat16ToFloat(bits);
}

uint16_t FloatToNarrow(DType dtype, float value) {
  DIAPASON_CHECK_MSG(IsNarrowFloat(dtype), NameOf(dtype));
  return dtype == DType::kFloat16 ? FloatToHalf(value) : FloatToBfloat16(value);
}

void WidenFloats(const Array& array, int64_t begin, int64_t end, float* to) {
  DIAPASON_CHECK_MSG(IsNarrowFloat(array.dtype), NameOf(array.dtype));
  const uint16_t* from = array.as<uint16_t>();
  if (array.dtype == DType::kFloat16) {
    for (int64_t i = begin; i < end; ++i) to[i - begin] = HalfToFloat(from[i]);
  } else {
    for (int64_t i = begin; i < end; ++i) to[i - begin] = Bfloat16ToFloat(from[i]);
  }
}

Array CastArray(const Array& array, DType dtype) {
  Array out(dtype, array.shape);
  int64_t n = array.elements();
  bool from_float = IsFloat(array.dtype);
  for (int64_t i = 0; i < n; ++i) {
    if (dtype == DType::kBool) {
      out.set_int(i, from_float ? array.at(i) != 0 : array.int_at(i) != 0);
    } else if (IsFloat(dtype)) {
      out.set(i, array.at(i));
    } else {
      out.set_int(i, from_float ? static_cast<int64_t>(std::trunc(array.at(i))) : array.int_at(i));
    }
  }
  return out;
}

double RoundTo(DType dtype, double value) {
  if (dtype == DType::kFloat64) return value;
  const float rounded = static_cast<float>(value);
  return IsNarrowFloat(dtype) ? NarrowToFloat(dtype, FloatToNarrow(dtype, rounded)) : rounded;
}

}  // namespace diapason
