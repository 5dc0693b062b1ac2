// Stores of what tensor cores leave in registers: a lane has two neighbouring columns of each eight (kMma), so that a
// store of a warp writes eight pieces of 16 bytes, half of a sector of the second cache each; or, where the product's
// columns are the tensor's rows, two neighbouring rows, so that each store of a lane writes 2 bytes.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with lanes that exchange their columns of four times eight (or of two times eight) among the four of
// a row before they are stored, and then store 16 (8) bytes each: kQuadStore. Only loops over tiles whose elements have
// 16 bits, whose conditions are the same for a row, and that lie at multiples of 16 (8) bytes are changed. Where
// rows are columns of the product, the lanes of a warp transpose 8 rows of 16 elements (movmatrix) and store 8 bytes
// each, if all values are in registers. `next_buffer`: an id that no buffer has; the next one is left there.
KernelFunc WithWideStores(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
