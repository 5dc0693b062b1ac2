#include "compiler/lower/expand_loops.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/lower/map_children.h"

namespace diapason {

Stmt LoopExpander::Expand(const Stmt& stmt, const VarMap& values) {
  const Stmt known = MapExprs(stmt, [&](const Expr& e) { return Substitute(e, values); });
  return known == nullptr ? nullptr : Run(known, false);
}

Stmt LoopExpander::Run(const Stmt& stmt, bool inside) {
  const bool is_loop = stmt->kind == StmtKind::kFor;
  if (is_loop) analyzer_.Bind(stmt->var, stmt->extent);
  if (!is_loop || !wanted_(*stmt, inside)) {
    return MapChildren(
        *stmt, [&](const Stmt& child) { return Run(child, inside); },
        [this](const Expr& e) { return analyzer_.Simplify(e); });
  }
  const int64_t stores = CountStores(stmt->body[0]);
  if (stores > max_stores_ / stmt->extent) {
    const int64_t copies = std::clamp<int64_t>(max_stores_ / 4 / stores, 1, 8);
    const int hint = static_cast<int>(std::min(stmt->extent, copies));
    return MakeFor(ForKind::kSerial, stmt->var, stmt->extent, Run(stmt->body[0], true), hint);
  }
  // Outermost loops first: what their variables decide is folded before the loops inside are copied.
  std::vector<Stmt> copies;
  for (int64_t i = 0; i < stmt->extent; ++i) {
    const VarMap value{{stmt->var.get(), IntImm(i)}};
    const Stmt copy = MapExprs(stmt->body[0], [&](const Expr& e) { return Substitute(e, value); });
    if (copy != nullptr) copies.push_back(Run(copy, true));
  }
  return MakeSeq(std::move(copies));
}

bool ChoosesByVariable(const StmtNode& loop) {
  const auto chooses = [&](const Expr& value) {
    bool found = false;
    Visit(value, [&](const ExprNode& node) {
      found |= node.kind == ExprKind::kSelect && UsesVar(node.args[0], loop.var.get());
    });
    return found;
  };
  return Contains(loop.body[0],
                  [&](const StmtNode& stmt) { return stmt.kind == StmtKind::kStore && chooses(stmt.value); });
}

int64_t CountStores(const Stmt& stmt) {
  if (stmt->kind == StmtKind::kStore) return 1;
  int64_t count = 0;
  for (const Stmt& child : stmt->body) count += CountStores(child);
  return stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kUnroll ? count * stmt->extent : count;
}

}  // namespace diapason
