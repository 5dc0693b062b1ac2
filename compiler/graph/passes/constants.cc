#include "compiler/graph/passes/constants.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace diapason {

Array TransposeArray(const Array& array, const std::vector<int64_t>& perm) {
  size_t rank = array.shape.size();
  std::vector<int64_t> strides(rank, 1), shape(rank), step(rank);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * array.shape[d];
  for (size_t d = 0; d < rank; ++d) {
    shape[d] = array.shape[perm[d]];
    step[d] = strides[perm[d]];
  }
  Array out(array.dtype, shape);
  size_t bytes = BytesOf(array.dtype);
  std::vector<int64_t> index(rank, 0);
  int64_t from = 0;
  for (int64_t to = 0, n = out.elements(); to < n; ++to) {
    std::memcpy(&out.data[to * bytes], &array.data[from * bytes], bytes);
    for (size_t d = rank; d-- > 0;) {
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

}  // namespace diapason
