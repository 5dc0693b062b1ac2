// Where a program writes its output when that is a part of a larger tensor, as the parts of a concatenation are.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace diapason {

// Flat element i lies at offset + i / row * stride + i % row of the larger tensor, which is row-major like the part.
// The default: no larger tensor.
struct OutputPlace {
  int64_t row = 0;       // elements of the part that stay together
  int64_t stride = 0;    // from one such row to the next
  int64_t offset = 0;    // of the first
  int64_t elements = 0;  // of the larger tensor

  bool whole() const { return row == 0; }
  int64_t At(int64_t i) const { return whole() ? i : offset + i / row * stride + i % row; }
  // A part of so many elements lies inside the larger tensor, each element at a place of its own.
  bool Holds(int64_t part_elements) const;
  std::string ToString() const;  // "rows of 64 at 0 of every 128", for people; empty for none
  auto operator<=>(const OutputPlace&) const = default;
};

// The place in the largest tensor of a part, of so many elements, of a part: `inner` in a tensor that lies at `outer`.
// Nothing where that is not rows at equal distances.
std::optional<OutputPlace> Compose(const OutputPlace& outer, const OutputPlace& inner, int64_t part_elements);

}  // namespace diapason
