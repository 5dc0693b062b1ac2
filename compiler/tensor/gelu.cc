#include "compiler/tensor/gelu.h"

#include <cmath>

namespace diapason {

Expr GeluByErf(const Expr& x) {
  const auto number = [&](double value) { return FloatImm(value, x->dtype); };
  return Mul(Mul(x, number(0.5)), Add(Call("erf", {Mul(x, number(std::sqrt(0.5)))}), number(1)));
}

Expr GeluByTanh(const Expr& x) {
  const auto number = [&](double value) { return FloatImm(value, x->dtype); };
  const Expr cubic = Mul(Mul(Mul(x, x), x), number(0.044715));
  const Expr inner = Mul(Add(x, cubic), number(std::sqrt(2 / std::acos(-1.0))));
  return Mul(Mul(x, number(0.5)), Add(Call("tanh", {inner}), number(1)));
}

}  // namespace diapason
