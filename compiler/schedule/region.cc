#include "compiler/schedule/region.h"

#include <algorithm>
#include <numeric>

namespace diapason {
namespace {

// In ascending order of their units, equal ones as they stand. A handful: insertion needs no memory, unlike
// std::stable_sort.
void SortByUnit(ShortList<Level, 10>* levels) {
  for (size_t i = 1; i < levels->size(); ++i) {
    const Level level = (*levels)[i];
    size_t at = i;
    for (; at > 0 && (*levels)[at - 1].unit > level.unit; --at) (*levels)[at] = (*levels)[at - 1];
    (*levels)[at] = level;
  }
}

// Appends the level of `extent` steps of `unit`, merging with the outermost level so far. Units come in ascending
// order.
void AddLevel(ShortList<Level, 6>* levels, int64_t unit, int64_t extent) {
  if (extent <= 1) return;
  if (levels->empty()) {
    levels->push_back({unit, extent});
    return;
  }
  Level& top = levels->back();
  const int64_t span = top.unit * top.extent;
  if (unit == span) {
    top.extent *= extent;
  } else if (unit > span && unit % top.unit == 0) {
    levels->push_back({unit, extent});
  } else {
    const int64_t common = std::gcd(top.unit, unit);
    top.extent = (unit * (extent - 1) + top.unit * (top.extent - 1)) / common + 1;
    top.unit = common;
  }
}

}  // namespace

void Region::Clear() {
  full = seen = hull = false;
  outer.clear();
  inner.clear();
}

void Region::Include(const IndexTerms& terms, int64_t span) {
  if (full) return;
  for (const Term& term : terms.inner) full |= term.coefficient < 0;
  if (full) return;
  if (!seen) {
    seen = true;
    outer = terms.outer;
    inner = terms.inner;
    constant_min = constant_max = terms.constant;
    hull_extent = span;
    return;
  }
  if (!(outer == terms.outer)) {
    full = true;
    return;
  }
  if (!(inner == terms.inner)) hull = true;
  const int64_t low = std::min(constant_min, terms.constant);
  hull_extent = std::max(constant_min + hull_extent, terms.constant + span) - low;
  constant_min = low;
  constant_max = std::max(constant_max, terms.constant);
}

void Region::Finish(int64_t whole, ShortList<Level, 10> steps) {
  levels.clear();
  full |= !seen;
  if (full || hull || constant_max > constant_min) {
    // Several loads at different constants: the window of constants is one more level of unit 1, so all become one
    // hull.
    extent = full ? whole : hull_extent;
    levels.push_back({1, extent});
    return;
  }
  SortByUnit(&steps);
  for (const Level& step : steps) AddLevel(&levels, step.unit, step.extent);
  if (levels.empty()) levels.push_back({1, 1});
  extent = 1;
  for (const Level& level : levels) extent *= level.extent;
}

void Region::Align(int64_t alignment) {
  if (full || alignment <= 1 || levels.size() != 1 || levels[0].unit != 1 || extent == 1) return;
  const int64_t before = (constant_min % alignment + alignment) % alignment;
  constant_min -= before;
  extent = CeilDiv(before + extent, alignment) * alignment;
  levels[0].extent = extent;
}

int64_t Region::CoordinateStep(int64_t step, int64_t loop_extent) const {
  int64_t compact = 1;
  for (const Level& level : levels) {
    const int64_t next = compact * level.extent;
    const bool top = &level == &levels.back();
    if (step % compact == 0 && step >= compact && (top || (step < next && step * loop_extent <= next)))
      return step / compact * level.unit;
    compact = next;
  }
  return 0;
}

int64_t LevelOf(const Region& region, int64_t coefficient, int64_t* compact_coefficient) {
  int64_t compact = 1;
  for (size_t l = 0; l < region.levels.size(); ++l) {
    const Level& level = region.levels[l];
    const bool last = l + 1 == region.levels.size();
    if (last || coefficient < region.levels[l + 1].unit) {
      *compact_coefficient = coefficient / level.unit * compact;
      return static_cast<int64_t>(l);
    }
    compact *= level.extent;
  }
  *compact_coefficient = 0;
  return -1;
}

}  // namespace diapason
