// Contents for measuring and checking: random where a kernel reads, poison where it must write.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/runtime/executable.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Floats uniform in [-1, 1), so that sums do not drift and both branches of an activation are taken; integers uniform
// in [valid_min, valid_max]; booleans 0 or 1. The same seed gives the same values on every machine.
void FillRandom(Array& array, uint64_t seed, int64_t valid_min = 0, int64_t valid_max = 0);

// Contents of a placeholder for checking a result, equal for equal (dag, stage, seed) on every machine. Floats are
// drawn from RangeOfInput (compiler/tensor/compare.h), whose magnitudes stay away from zero, integers from
// DrawnIntegers.
Array RandomInput(const ComputeDag& dag, int stage, uint64_t seed);

// Fresh random contents for every input and constant of the executable, and 0xff bytes, which are NaN for floats, in
// everything else: an element that no kernel writes then shows. Buffer i is drawn with a seed made of `seed` and i.
// Integers of 8 bits without a valid range take all values.
// REQUIRES: every buffer bound or allocated. The prologue has to run after it.
absl::Status FillForMeasuring(Executable& executable, uint64_t seed);

}  // namespace diapason
