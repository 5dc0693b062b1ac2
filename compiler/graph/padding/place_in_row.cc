#include "compiler/graph/padding/place_in_row.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

namespace diapason {

std::optional<PlaceInRow> PlaceOfConstant(const Array& constant, const std::vector<int64_t>& blocks) {
  if (IsFloat(constant.dtype) || std::count(blocks.begin(), blocks.end(), 0) + 1 != std::ssize(blocks))
    return std::nullopt;
  const size_t axis = std::find_if(blocks.begin(), blocks.end(), [](int64_t b) { return b > 0; }) - blocks.begin();
  const int64_t of_a_row = std::accumulate(constant.shape.begin() + static_cast<int64_t>(axis) + 1,
                                           constant.shape.end(), blocks[axis], std::multiplies<>());
  const int64_t rows = constant.shape[axis] / blocks[axis];
  if (rows < 2) return std::nullopt;
  const auto first = static_cast<double>(constant.int_at(0));
  PlaceInRow place{axis, constant.int_at(of_a_row) - constant.int_at(0), first, first};
  for (int64_t e = 0, n = constant.elements(); e < n; ++e) {
    const auto rest = static_cast<double>(constant.int_at(e) - e / of_a_row % rows * place.step);
    place.lower = std::min(place.lower, rest);
    place.upper = std::max(place.upper, rest);
  }
  return place;
}

}  // namespace diapason
