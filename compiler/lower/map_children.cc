#include "compiler/lower/map_children.h"

#include <utility>
#include <vector>

namespace diapason {
namespace {

std::vector<Expr> Mapped(const std::vector<Expr>& all, const std::function<Expr(const Expr&)>& fn) {
  std::vector<Expr> mapped;
  for (const Expr& e : all) mapped.push_back(fn(e));
  return mapped;
}

// Null where an element would be stored to itself.
Stmt StoreUnlessSame(const StmtNode& s, Expr index, Expr value) {
  const bool itself = value->kind == ExprKind::kLoad && value->buffer == s.buffer && value->args.size() == 1 &&
                      Equal(value->args[0], index);
  return itself ? nullptr : MakeStore(s.buffer, std::move(index), std::move(value), s.async);
}

// The same statement with other children and expressions; null where nothing is left.
Stmt WithParts(const StmtNode& s, std::vector<Stmt> body, const std::function<Expr(const Expr&)>& fn) {
  switch (s.kind) {
    case StmtKind::kFor: return MakeFor(s.for_kind, s.var, s.extent, std::move(body[0]), s.unroll);
    case StmtKind::kSeq: return MakeSeq(std::move(body));
    case StmtKind::kStore:
      if (!s.operands.empty()) return MakeRemoteStore(s.buffer, fn(s.index), fn(s.value), fn(s.operands[0]));
      return StoreUnlessSame(s, fn(s.index), fn(s.value));
    case StmtKind::kIf: return (s.role ? MakeRole : MakeIf)(fn(s.condition), std::move(body[0]));
    case StmtKind::kAlloc: return MakeAlloc(s.decl, std::move(body[0]));
    case StmtKind::kBarrier: return MakeBarrier(s.extent);
    case StmtKind::kSetRegisters: return MakeSetRegisters(s.extent, IsInt(s.value, 1));
    case StmtKind::kClusterBarrier: return MakeClusterBarrier(body.empty() ? nullptr : std::move(body[0]));
    case StmtKind::kClusterEnd: return MakeClusterEnd();
    case StmtKind::kLet: return MakeLet(s.var, fn(s.value), std::move(body[0]));
    case StmtKind::kComment: return MakeComment(s.text);
    case StmtKind::kMma: return MakeMma(s.tensor, s.factors, s.buffer, Mapped(s.operands, fn), s.from_zero);
    case StmtKind::kLoadMatrix:
      return MakeLoadMatrix({s.tensor, s.buffer, fn(s.index), s.extent, fn(s.value), s.transposed});
    case StmtKind::kShuffle: return MakeShuffle(s.buffer, fn(s.index), fn(s.value), fn(s.operands[0]));
    case StmtKind::kQuadStore:
      if (s.transposed)
        return MakeTransposedStore(s.buffer, fn(s.index), Mapped(s.operands, fn),
                                   s.condition ? fn(s.condition) : nullptr);
      return MakeQuadStore(s.buffer, fn(s.index), Mapped(s.operands, fn), s.extent);
    case StmtKind::kPack: return MakePack(s.buffer, fn(s.index), Mapped(s.operands, fn));
    case StmtKind::kFactorParts: return MakeFactorParts(s.part, s.buffer, fn(s.index), s.extent, fn(s.value));
    case StmtKind::kGroupMma:
      return MakeGroupMma({.tensor = s.tensor,
                           .factors = s.factors,
                           .buffer = s.buffer,
                           .sums = Mapped(s.sums, fn),
                           .index = s.sums.empty() ? fn(s.index) : nullptr,
                           .columns = s.extent,
                           .from_zero = s.from_zero,
                           .operands = Mapped(s.operands, fn),
                           .column_matrices = s.columns,
                           .row_matrices = s.rows});
    case StmtKind::kGroupSync:
      return s.sums.empty() ? MakeGroupSync(s.sync, s.extent) : MakeGroupWait(s.extent, s.buffer, Mapped(s.sums, fn));
    case StmtKind::kBulkCopy:
      return MakeBulkCopy(s.buffer, fn(s.index), s.extent, fn(s.value),
                          s.operands.empty() ? nullptr : fn(s.operands[0]));
    case StmtKind::kTensorCopy: {
      std::vector<Expr> coordinates = Mapped(s.operands, fn);
      Expr arrival = std::move(coordinates.front());
      coordinates.erase(coordinates.begin());
      return MakeTensorCopy({s.box, fn(s.value), s.buffer, fn(s.index), std::move(arrival), std::move(coordinates),
                             s.condition ? fn(s.condition) : nullptr});
    }
    case StmtKind::kMbarrier:
      if (s.mbarrier == MbarrierOp::kInit) return MakeMbarrierInit(fn(s.operands[0]), s.extent, s.value->value);
      if (s.mbarrier == MbarrierOp::kArrive)
        return MakeMbarrierArrive(fn(s.operands[0]), s.condition ? fn(s.condition) : nullptr);
      return MakeMbarrierWait(fn(s.operands[0]), fn(s.value));
    case StmtKind::kCommit: return MakeCommit();
    case StmtKind::kLaunchDependents: return MakeLaunchDependents();
    case StmtKind::kWait: return MakeWait(s.extent);
  }
  return nullptr;
}

}  // namespace

Stmt MapChildren(const StmtNode& stmt, const std::function<Stmt(const Stmt&)>& child,
                 const std::function<Expr(const Expr&)>& fn) {
  std::vector<Stmt> body;
  body.reserve(stmt.body.size());
  for (const Stmt& part : stmt.body) body.push_back(child(part));
  return WithParts(stmt, std::move(body), fn);
}

Stmt MapExprs(const Stmt& stmt, const std::function<Expr(const Expr&)>& fn) {
  if (stmt == nullptr) return nullptr;
  return MapChildren(
      *stmt, [&](const Stmt& child) { return MapExprs(child, fn); }, fn);
}

}  // namespace diapason
