// A network at two sizes of a symbol, for tests of the proof's parts.
#pragma once

#include <functional>
#include <string>

#include "../testing.h"
#include "compiler/graph/padding/facts.h"

namespace diapason {

// A network at size 6 of "batch" and its twin at 4; rows from 3 on may be padding. An input named "mask" is the mask.
struct TwoSizes {
  explicit TwoSizes(const std::function<Network(int64_t)>& make)
      : network(make(6)), other(make(4)), question{"batch", network, 6, other, 4, 3, "mask"}, facts(question) {}

  const Node& node(size_t n) const { return facts.network().nodes[n]; }
  const PaddingFact& result(size_t n) const { return facts.of(node(n).output); }

  Network network, other;
  PaddingQuestion question;
  PaddingFacts facts;
};

}  // namespace diapason
