// The elements of a stage that one iteration of the loop at which it is computed needs, dimension by dimension.
//
// Along a dimension these are the coordinates
//     offset + sum over levels of unit_l * i_l,   0 <= i_l < extent_l
// stored compactly (levels side by side, without the gaps of strided tiles): virtual threads and strided convolutions
// need no more memory than the elements they touch. Neighbouring levels that touch are merged; overlapping ones
// (sliding windows) become their hull, the range from the first coordinate to the last.
#pragma once

#include <cstdint>

#include "compiler/schedule/short_list.h"

namespace diapason {

// REQUIRES: a >= 0, b > 0.
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// coefficient * (value of a loop). The loop is an atom: a leaf, or a loop that was fused into another.
struct Term {
  int stage;
  int loop;
  int64_t coefficient;
  bool operator==(const Term&) const = default;
};
using Terms = ShortList<Term, 10>;

// An index that is affine in loops, by the place where the producer is computed: outside of it, and inside.
struct IndexTerms {
  Terms outer, inner;
  int64_t constant = 0;
};

struct Level {
  int64_t unit, extent;
};

// One dimension. Filled in by Clear, Include for each load and Finish; then the results hold.
struct Region {
  bool full = false;  // the whole dimension (unknown or unlike accesses)
  bool seen = false;
  Terms outer;        // offset: loops outside the attach point
  Terms inner;        // loops inside it, of the first access
  bool hull = false;  // accesses differ: one level of unit 1
  int64_t constant_min = 0, constant_max = 0, hull_extent = 0;
  // Results.
  ShortList<Level, 6> levels;  // from the innermost
  int64_t extent = 1;          // compact: product of the levels' extents

  // Nothing is included. Memory stays allocated.
  void Clear();
  // What a load with these indices needs, which from its first to its last element covers `span` coordinates. Loads
  // with other loops outside, or with an index that falls as a loop inside rises, make it the whole dimension.
  void Include(const IndexTerms& terms, int64_t span);
  // Computes the results. `steps` has a level for each of `inner`, in that order: its coefficient, the loop's extent.
  // Where nothing was included, it becomes the whole dimension, whose extent is `whole`.
  void Finish(int64_t whole, ShortList<Level, 10> steps);
  // Widens a run of neighbours to whole vectors of `alignment` elements; a region with gaps, of one element, or of the
  // whole dimension stays as it is. REQUIRES: Finish was called.
  void Align(int64_t alignment);
  // How far coordinates move as the compact coordinate moves by `step`, for a loop of that extent; 0: not always by the
  // same, since the loop crosses from one level into the next.
  int64_t CoordinateStep(int64_t step, int64_t loop_extent) const;
};

// The level in which coordinates that are multiples of `coefficient` move, and by how much the compact coordinate moves
// with them; -1, and 0: there are no levels. Level l starts at the product of the extents of those below it.
int64_t LevelOf(const Region& region, int64_t coefficient, int64_t* compact_coefficient);

}  // namespace diapason
