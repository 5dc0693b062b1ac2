// Products as most networks have them.
#pragma once

#include <cstdint>

#include "compiler/graph/network.h"

namespace diapason {

// Whether a node multiplies its first two inputs as they are: a matmul, or a gemm that neither transposes nor scales.
inline bool IsPlainProduct(const Node& node) {
  const Attributes& a = node.attributes;
  return (node.op == "matmul" || node.op == "gemm") && a.Int("trans_a", 0) == 0 && a.Int("trans_b", 0) == 0 &&
         a.Float("alpha", 1) == 1 && a.Float("beta", 1) == 1;
}

}  // namespace diapason
