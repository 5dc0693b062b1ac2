// The place of a program's output inside a larger tensor, such as the result of a concatenation.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace diapason {

// Flat element i is element offset + i / row * stride + i % row of the larger tensor, which is row-major like the part.
// The default value means that there is no larger tensor.
struct OutputPlace {
  int64_t row = 0;       // consecutive elements of the part that are consecutive in the larger tensor
  int64_t stride = 0;    // from the start of one such row to the next
  int64_t offset = 0;    // of the first row
  int64_t elements = 0;  // of the larger tensor

  bool whole() const { return row == 0; }
  int64_t At(int64_t i) const { return whole() ? i : offset + i / row * stride + i % row; }
  // Whether a part of so many elements fits into the larger tensor without two elements at one place.
  bool Holds(int64_t part_elements) const;
  std::string ToString() const;  // "rows of 64 at 0 of every 128"; empty if whole
  auto operator<=>(const OutputPlace&) const = default;
};

// The place of a part within a part: `inner` is the place of `part_elements` elements in a tensor that is itself at
// `outer`. Nothing if the result is not rows at equal distances.
std::optional<OutputPlace> Compose(const OutputPlace& outer, const OutputPlace& inner, int64_t part_elements);

}  // namespace diapason
