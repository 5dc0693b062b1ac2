#include "compiler/graph/passes/constants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace diapason {

namespace {

// `count` elements at distances of `step`, one behind the other.
template <typename T>
void Gather(const uint8_t* from, int64_t step, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof(T), from + i * step * sizeof(T), sizeof(T));
}

void Gather(const uint8_t* from, int64_t step, int64_t count, size_t bytes, uint8_t* to) {
  switch (bytes) {
    case 1: return Gather<uint8_t>(from, step, count, to);
    case 2: return Gather<uint16_t>(from, step, count, to);
    case 4: return Gather<uint32_t>(from, step, count, to);
    default: DIAPASON_CHECK(bytes == 8); return Gather<uint64_t>(from, step, count, to);
  }
}

}  // namespace

Array TransposeArray(const Array& array, const std::vector<int64_t>& perm) {
  const size_t rank = array.shape.size();
  if (rank == 0) return array;
  std::vector<int64_t> strides(rank, 1), shape(rank), step(rank);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * array.shape[d];
  for (size_t d = 0; d < rank; ++d) {
    shape[d] = array.shape[perm[d]];
    step[d] = strides[perm[d]];
  }
  Array out(array.dtype, shape);
  const size_t bytes = BytesOf(array.dtype);
  std::vector<int64_t> index(rank, 0);
  int64_t from = 0;
  for (int64_t to = 0, n = out.elements(); to < n; to += shape.back()) {
    Gather(&array.data[from * bytes], step.back(), shape.back(), bytes, &out.data[to * bytes]);
    for (size_t d = rank - 1; d-- > 0;) {
      from += step[d];
      if (++index[d] < shape[d]) break;
      from -= step[d] * shape[d];
      index[d] = 0;
    }
  }
  return out;
}

Array ReshapeArray(Array array, std::vector<int64_t> shape) {
  int64_t elements = array.elements();
  array.shape = std::move(shape);
  DIAPASON_CHECK(array.elements() == elements);
  return array;
}

namespace {

// A number above 0 that is as good as 0, and whose reciprocal is finite.
double LeastOf(DType dtype) {
  return dtype == DType::kFloat16 ? 0x1p-24 : static_cast<double>(std::numeric_limits<float>::min());
}

// What numbers beyond the range become. In float16, what is more than twice as large as any number stands for infinity:
// another half of the range can be added to it, such as a score, or a second mask.
double MostFor(double value, DType dtype) {
  const double most = LargestOf(dtype);
  return std::copysign(dtype == DType::kFloat16 && std::abs(value) > 2 * most ? most / 2 : most, value);
}

}  // namespace

double RoundNumber(double value, DType dtype) {
  if (!std::isfinite(value)) return value;
  if (std::abs(value) > LargestOf(dtype)) return MostFor(value, dtype);
  const double rounded = RoundTo(dtype, value);
  return rounded == 0 && value != 0 ? std::copysign(LeastOf(dtype), value) : rounded;
}

Array RoundConstant(const Array& array, DType dtype) {
  Array rounded = CastArray(array, dtype);
  const double most = LargestOf(dtype);
  for (int64_t i = 0, n = array.elements(); i < n; ++i)
    if (const double value = array.at(i); std::abs(value) > most && std::isfinite(value))
      rounded.set(i, MostFor(value, dtype));
  if (array.elements() == 1) rounded.set(0, RoundNumber(array.at(0), dtype));
  return rounded;
}

Array SubtractIntegers(const Array& from, const Array& less) {
  Array out(DType::kInt32, from.shape);
  const size_t rank = from.shape.size(), skipped = rank - less.shape.size();
  std::vector<int64_t> at(rank, 0), step(rank, 0);  // of each dimension, in elements of `less`
  for (int64_t d = static_cast<int64_t>(rank) - 1, stride = 1; d >= static_cast<int64_t>(skipped); --d) {
    const int64_t extent = less.shape[d - skipped];
    step[d] = extent == 1 ? 0 : stride;
    stride *= extent;
  }
  int64_t other = 0;
  for (int64_t i = 0, n = out.elements(); i < n; ++i) {
    const auto difference = static_cast<uint32_t>(from.int_at(i)) - static_cast<uint32_t>(less.int_at(other));
    out.set_int(i, static_cast<int32_t>(difference));
    for (size_t d = rank; d-- > 0;) {
      other += step[d];
      if (++at[d] < from.shape[d]) break;
      other -= step[d] * from.shape[d];
      at[d] = 0;
    }
  }
  return out;
}

}  // namespace diapason
