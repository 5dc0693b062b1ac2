// A dense row-major tensor in host memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/tensor/dtype.h"

namespace diapason {

struct Array {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;  // elements() * BytesOf(dtype) bytes

  Array() = default;
  Array(DType dtype, std::vector<int64_t> shape);  // zero-filled
  static Array FromFloats(std::vector<int64_t> shape, const std::vector<float>& values);

  int64_t elements() const;
  // Element i in row-major order, converted.
  double at(int64_t i) const;
  void set(int64_t i, double value);
  int64_t int_at(int64_t i) const;
  void set_int(int64_t i, int64_t value);
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data.data());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.data());
  }
};

// Elements converted: truncated towards zero to integers, != 0 to bool.
Array CastArray(const Array& array, DType dtype);
// The nearest number that an element of a float type can hold.
double RoundTo(DType dtype, double value);

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);  // round to nearest even
float Bfloat16ToFloat(uint16_t bits);
uint16_t FloatToBfloat16(float value);  // round to nearest even
// The same for any narrow float. REQUIRES: IsNarrowFloat(dtype).
float NarrowToFloat(DType dtype, uint16_t bits);
uint16_t FloatToNarrow(DType dtype, float value);
// Elements [begin, end) of an array of a narrow float.
void WidenFloats(const Array& array, int64_t begin, int64_t end, float* to);

}  // namespace diapason
