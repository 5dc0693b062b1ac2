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

}  // namespace diapason
