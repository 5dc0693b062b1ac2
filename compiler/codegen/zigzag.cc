#include "compiler/codegen/zigzag.h"

#include <algorithm>
#include <vector>

#include "compiler/codegen/passes.h"
#include "compiler/tensor/expr.h"

namespace diapason {
namespace {

// Fewer products leave nothing to be ordered.
constexpr int64_t kLeastSide = 4;

struct Loops {
  std::vector<const StmtNode*> reduce, rows, columns;
  const StmtNode* product = nullptr;  // the store
};

int64_t Extent(const std::vector<const StmtNode*>& loops) {
  int64_t extent = 1;
  for (const StmtNode* loop : loops) extent *= loop->extent;
  return extent;
}

// A multiply-add to an element of a buffer: its two factors; null for anything else.
const ExprNode* ProductOf(const StmtNode& store) {
  if (store.kind != StmtKind::kStore || store.async || store.value->kind != ExprKind::kAdd) return nullptr;
  const Expr &old = store.value->args[0], &product = store.value->args[1];
  const bool adds = old->kind == ExprKind::kLoad && old->buffer == store.buffer && old->args.size() == 1 &&
                    Equal(old->args[0], store.index) && product->kind == ExprKind::kMul;
  return adds ? product.get() : nullptr;
}

bool Reads(const Expr& e, int buffer) {
  bool found = false;
  Visit(e, [&](const ExprNode& node) { found |= node.kind == ExprKind::kLoad && node.buffer == buffer; });
  return found;
}

// The loops from `outermost` inwards if they are such a nest.
bool FindProducts(const Stmt& outermost, Loops* loops) {
  std::vector<const StmtNode*> all;
  const StmtNode* inner = outermost.get();
  for (; inner->kind == StmtKind::kFor && inner->for_kind == ForKind::kUnroll && inner->body.size() == 1; inner = inner->body[0].get())
    all.push_back(inner);
  const ExprNode* product = ProductOf(*inner);
  if (product == nullptr || all.size() < 2) return false;
  const Expr &a = product->args[0], &b = product->args[1];
  if (Reads(a, inner->buffer) || Reads(b, inner->buffer)) return false;
  for (const StmtNode* loop : all) {
    const bool sum = UsesVar(inner->index, loop->var.get());
    const bool in_a = UsesVar(a, loop->var.get()), in_b = UsesVar(b, loop->var.get());
    if (loop->extent == 1) {
      loops->reduce.insert(loops->reduce.begin(), loop);
    } else if (!sum) {
      loops->reduce.push_back(loop);
    } else if (in_a == in_b) {
      return false;
    } else {
      (in_a ? loops->rows : loops->columns).push_back(loop);
    }
  }
  loops->product = inner;
  return Extent(loops->rows) >= kLeastSide && Extent(loops->columns) >= kLeastSide;
}

// True if a factor's elements along the innermost reduce loop are neighbours: they come into registers together.
bool LiesAlongK(const Loops& loops, const Expr& factor, Analyzer& analyzer) {
  if (loops.reduce.empty() || factor->kind != ExprKind::kLoad || factor->args.size() != 1) return false;
  const Stride stride = StrideOf(factor->args[0], loops.reduce.back()->var, analyzer);
  return stride.affine && stride.stride == 1;
}

Stmt Reorder(const Loops& loops, Analyzer& analyzer) {
  const ExprNode& product = *ProductOf(*loops.product);
  const bool rows_along_k = LiesAlongK(loops, product.args[0], analyzer);
  const bool rows_inside = rows_along_k != LiesAlongK(loops, product.args[1], analyzer)
                               ? rows_along_k
                               : Extent(loops.rows) <= Extent(loops.columns);
  const auto &outside = rows_inside ? loops.columns : loops.rows, &inside = rows_inside ? loops.rows : loops.columns;
  Expr place = IntImm(0);
  for (const StmtNode* loop : outside) place = Add(Mul(place, IntImm(loop->extent)), loop->var);
  const Expr forth = Eq(FloorMod(place, 2), IntImm(0));
  Stmt body = MakeStore(loops.product->buffer, loops.product->index, loops.product->value);
  std::vector<Expr> turns;
  for (const StmtNode* loop : inside) {
    turns.push_back(MakeVar(loop->var->name + "_t"));
    body = MakeLet(loop->var, Select(forth, turns.back(), Sub(IntImm(loop->extent - 1), turns.back())), body);
  }
  for (size_t i = inside.size(); i-- > 0;) body = MakeFor(ForKind::kUnroll, turns[i], inside[i]->extent, body);
  for (const auto* side : {&outside, &loops.reduce})
    for (size_t i = side->size(); i-- > 0;) body = MakeFor(ForKind::kUnroll, (*side)[i]->var, (*side)[i]->extent, body);
  return body;
}

}  // namespace

Stmt ZigzagProducts(const Stmt& stmt, Analyzer& analyzer) {
  if (stmt == nullptr) return nullptr;
  Loops loops;
  if (stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kUnroll && FindProducts(stmt, &loops))
    return Reorder(loops, analyzer);
  auto copy = std::make_shared<StmtNode>(*stmt);
  for (Stmt& child : copy->body) child = ZigzagProducts(child, analyzer);
  return copy;
}

}  // namespace diapason
