// What passes do with constants directly, without expressions: weights have millions of elements.
#pragma once

#include <vector>

#include "compiler/graph/network.h"
#include "compiler/tensor/array.h"

namespace diapason {

// Dimension d of the result is dimension perm[d] of the input. REQUIRES: perm is a permutation of the dimensions.
Array TransposeArray(const Array& array, const std::vector<int64_t>& perm);
// The same elements in another shape. REQUIRES: as many elements.
Array ReshapeArray(Array array, std::vector<int64_t> shape);
// Rounded to a float type. Finite values stay finite, however large they are: the lowest float32, or float64, is how
// masks say "hidden", and as an infinity it makes NaN of the zeros that it is multiplied by. In float16 it becomes half
// of the lowest, so that scores can be added. Nor does a single number become 0: what is added to a divisor so that it
// is not 0 is often below the least float16.
Array RoundConstant(const Array& array, DType dtype);
// The same of a single number.
double RoundNumber(double value, DType dtype);
// Integers less others, modulo 2^32. REQUIRES: int32 both; the shape of `less` broadcasts to that of `from`.
Array SubtractIntegers(const Array& from, const Array& less);

}  // namespace diapason
