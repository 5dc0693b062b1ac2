// Which values of 8 bits in a vector loop in C are computed as vectors.
#pragma once

#include "compiler/codegen/c/access_printer.h"
#include "compiler/codegen/c/vector_lanes.h"
#include "compiler/tensor/expr.h"

namespace diapason {

// For one vector loop.
class ByteLanes {
 public:
  // Both must outlive this.
  ByteLanes(const VectorLanes& lanes, const CAccessPrinter& access) : lanes_(lanes), access_(access) {}

  // Whether lanes of such a value of 8 bits are vectors of int without being computed one by one. False for others.
  bool HaveForm(const Expr& e) const;
  // Where a load of neighbouring integers of 8 bits begins; null where it is none.
  Expr From(const Expr& load) const;

 private:
  const VectorLanes& lanes_;
  const CAccessPrinter& access_;
};

}  // namespace diapason
