// Which values the elements of a tensor may have: whether all are finite, and bounds. For compiler/graph alone.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "compiler/graph/network.h"

namespace diapason {

// A smaller number may be 0 on a device.
inline constexpr double kLeastOnDevices = 1e-37;

// Of all elements. Bounds hold for those that are not NaN; an infinite bound says nothing.
struct ValueRange {
  enum class Kind : uint8_t {
    kFinite,
    kFiniteOrLow,  // or -inf, as masks have it
    kAny,          // NaN and +inf as well
  };
  Kind kind = Kind::kAny;
  double lower = -std::numeric_limits<double>::infinity(), upper = std::numeric_limits<double>::infinity();

  bool finite() const { return kind == Kind::kFinite; }
  static ValueRange Finite() { return {Kind::kFinite}; }
};

ValueRange RangeOf(const Array& constant);

// Of the result of a node whose inputs have these ranges. Operators that are not known to keep finite values finite
// (quotients, logarithms, exponentials, roots of what may be too small or too large) give kAny. Sums and products of
// finite values of unknown size are taken for finite.
ValueRange RangeOf(const Network& network, const Node& node, const std::vector<ValueRange>& inputs);

}  // namespace diapason
