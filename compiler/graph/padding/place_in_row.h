// Integers that say where in its own row an element is, as indices of one element of each row do: for the proof of
// padding.h. For compiler/graph alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/tensor/array.h"

namespace diapason {

// `step` times the row on `axis`, plus something from `lower` to `upper`.
struct PlaceInRow {
  size_t axis = 0;
  int64_t step = 0;
  double lower = 0, upper = 0;

  // Whether it is an element of the own row, where rows have so many.
  bool IsOfRowsOf(int64_t elements) const {
    return step == elements && lower >= 0 && upper < static_cast<double>(elements);
  }
};

// Of a constant with integers, of which one axis grows. `blocks`: by axis, how many of its elements belong to a row; 0
// where it does not grow.
std::optional<PlaceInRow> PlaceOfConstant(const Array& constant, const std::vector<int64_t>& blocks);

}  // namespace diapason
