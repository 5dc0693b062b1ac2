// What is known of padded elements (padding.h). For compiler/graph alone.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "compiler/graph/network.h"

namespace diapason {

// The value of all elements whose index on one axis is padded, and real on all other growing axes.
struct PaddedValue {
  enum class Kind { kUnknown, kLow, kKnown };
  Kind kind = Kind::kUnknown;
  double value = 0;  // kKnown

  static PaddedValue Known(double value) { return {Kind::kKnown, value}; }
  static PaddedValue Low() { return {Kind::kLow, 0}; }
  // `finite`: of the tensor.
  bool finite(bool tensor) const { return kind == Kind::kKnown ? std::isfinite(value) : tensor; }

  bool is(double v) const { return kind == Kind::kKnown && value == v; }
  // So far below what networks compute with that exp() of the difference is 0, and it is no maximum: masks add -1e4 or
  // less.
  bool low() const { return kind == Kind::kLow || (kind == Kind::kKnown && value <= -1e4); }
  bool operator==(const PaddedValue&) const = default;
};

// Of an element-wise node whose inputs have these values there. `finite`, by input: whether all of its elements are
// finite, since 0 times infinity is not 0.
PaddedValue CombinePadded(const Network& network, const Node& node, const std::vector<PaddedValue>& inputs,
                          const std::vector<bool>& finite);

// Of a constant, along one axis. `blocks`: by axis, 0 where it does not grow; rows from `least` on may be padded. Low
// values other than -inf are known only where the first element of the axis, which is always real, is not low: there is
// something that they are low beside.
PaddedValue PaddedValueOf(const Array& constant, const std::vector<int64_t>& blocks, size_t axis, int64_t least);

// The value of all elements, where they are the same.
std::optional<double> UniformValue(const Array& constant);

}  // namespace diapason
