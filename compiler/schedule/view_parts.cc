#include "compiler/schedule/view_parts.h"

#include <algorithm>

namespace diapason {

Expr Renumbered(const Expr& body, const std::vector<int>& new_id) {
  return Rewrite(body, [&](const Expr& e) {
    return e->kind == ExprKind::kLoad ? Load(new_id[e->buffer], e->dtype, e->args) : e;
  });
}

const char* WrongWithWeights(const ExprNode& weights, const Stage& convolution) {
  if (weights.args.size() != 4) return "the weights have no 4 dimensions";
  std::vector<Expr> wanted{convolution.axes[3].var};
  for (const Axis& axis : convolution.reduce_axes) wanted.push_back(axis.var);
  for (const Expr& var : wanted)
    if (std::count(weights.args.begin(), weights.args.end(), var) != 1) return "the weights are not dense";
  return nullptr;
}

}  // namespace diapason
