// What is known of padded elements (padding.h). For compiler/graph alone.
#pragma once

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

  bool is(double v) const { return kind == Kind::kKnown && value == v; }
  // So far below what networks compute with that exp() of the difference is 0, and it is no maximum: masks add -1e4 or less.
  bool low() const { return kind == Kind::kLow || (kind == Kind::kKnown && value <= -1e4); }
  bool operator==(const PaddedValue&) const = default;
};

// Of an element-wise node whose inputs have these values there. Finite values are taken for granted: 0 times an unknown one is 0.
PaddedValue CombinePadded(const Network& network, const Node& node, const std::vector<PaddedValue>& inputs);

// Of a constant, along one axis. `blocks`: by axis, 0 where it does not grow; rows from `least` on may be padded.
PaddedValue PaddedValueOf(const Array& constant, const std::vector<int64_t>& blocks, size_t axis, int64_t least);

// The value of all elements, where they are the same.
std::optional<double> UniformValue(const Array& constant);

}  // namespace diapason
