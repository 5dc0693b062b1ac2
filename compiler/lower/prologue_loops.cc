#include "compiler/lower/prologue_loops.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/lower/expand_loops.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

constexpr int64_t kMostCopies = 64;      // F(4x4, 3x3) has 36 places in a tile
constexpr int64_t kMostUnrolled = 8;     // iterations of a loop inside
constexpr int64_t kMostNodes = 200'000;  // of all expressions together
constexpr int64_t kElementBytes = 4;     // of elements that vectors hold

// Calls fn for the value of each store; false: there is something else than loops, stores and registers.
bool VisitValues(const Stmt& stmt, const std::function<void(const Expr&)>& fn) {
  switch (stmt->kind) {
    case StmtKind::kStore: fn(stmt->value); return !stmt->async;
    case StmtKind::kFor:
    case StmtKind::kSeq:
    case StmtKind::kAlloc:
      return std::all_of(stmt->body.begin(), stmt->body.end(),
                         [&](const Stmt& child) { return VisitValues(child, fn); });
    default: return false;
  }
}

// Calls fn for each part of a condition in the value.
void VisitConditions(const Expr& value, const std::function<void(const ExprNode&)>& fn) {
  Visit(value, [&](const ExprNode& node) {
    if (node.kind == ExprKind::kSelect) Visit(node.args[0], fn);
  });
}

// The smallest number whose quotients of the variable conditions ask for; 0: none does.
int64_t SmallestDivisor(const Stmt& stmt, const ExprNode* var) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  VisitValues(stmt, [&](const Expr& value) {
    VisitConditions(value, [&](const ExprNode& node) {
      if (node.kind == ExprKind::kFloorDiv && node.args[0].get() == var)
        smallest = std::min(smallest, IntValue(node.args[1]));
    });
  });
  return smallest == std::numeric_limits<int64_t>::max() ? 0 : smallest;
}

int64_t NodesOf(const Stmt& stmt) {
  int64_t nodes = 0;
  VisitValues(stmt, [&](const Expr& value) { Visit(value, [&](const ExprNode&) { ++nodes; }); });
  return nodes;
}

// The statement for given values of some variables, with the short loops expanded by whose variable a value chooses.
// Null: nothing is left to do.
Stmt Expanded(const Stmt& stmt, const VarMap& values, Analyzer& analyzer) {
  const auto chooses = [](const StmtNode& loop, bool) {
    return (loop.for_kind == ForKind::kSerial || loop.for_kind == ForKind::kUnroll) && loop.extent <= kMostUnrolled &&
           ChoosesByVariable(loop);
  };
  return LoopExpander(analyzer, chooses).Expand(stmt, values);
}

// Registers stay around all copies.
Stmt CopyInside(const Stmt& stmt, const std::function<Stmt(const Stmt&)>& copy) {
  return stmt->kind == StmtKind::kAlloc ? MakeAlloc(stmt->decl, CopyInside(stmt->body[0], copy)) : copy(stmt);
}

// Whether `index` moves with `lane` from element to element.
bool MovesWith(Analyzer& analyzer, const Expr& index, const Expr& lane) {
  const Expr first = Substitute(index, {{lane.get(), IntImm(0)}});
  return IsInt(analyzer.Simplify(Sub(Sub(index, first), lane)), 0);
}

// The innermost loop over vectors, where it copies elements that lie together; else nothing.
std::optional<Stmt> VectorCopy(const Stmt& loop, Analyzer& analyzer, int64_t vector_bytes) {
  const Stmt& store = loop->body[0];
  if (store->kind != StmtKind::kStore || store->async || store->value->kind != ExprKind::kLoad ||
      store->value->args.size() != 1 || BytesOf(store->value->dtype) != kElementBytes)
    return std::nullopt;
  for (int64_t lanes = vector_bytes / kElementBytes; lanes > 1; lanes /= 2) {
    if (loop->extent % lanes != 0) continue;
    const Expr vector = MakeVar(loop->var->name + "_v"), lane = MakeVar(loop->var->name + "_l");
    analyzer.Bind(vector, loop->extent / lanes);
    analyzer.Bind(lane, lanes);
    const VarMap split{{loop->var.get(), Add(Mul(vector, IntImm(lanes)), lane)}};
    const Expr to = analyzer.Simplify(Substitute(store->index, split));
    const Expr from = analyzer.Simplify(Substitute(store->value->args[0], split));
    if (!MovesWith(analyzer, to, lane) || !MovesWith(analyzer, from, lane)) continue;
    Stmt copy = MakeStore(store->buffer, to, Load(store->value->buffer, store->value->dtype, {from}));
    copy = MakeFor(ForKind::kVectorize, lane, lanes, std::move(copy));
    return loop->extent == lanes ? Expanded(copy, {{vector.get(), IntImm(0)}}, analyzer)
                                 : MakeFor(ForKind::kSerial, vector, loop->extent / lanes, std::move(copy));
  }
  return std::nullopt;
}

}  // namespace

KernelFunc WithFasterLoops(KernelFunc kernel, int64_t vector_bytes) {
  const Stmt root = kernel.body;
  if (root == nullptr || !IsLoop(root, ForKind::kParallel) || !VisitValues(root, [](const Expr&) {})) return kernel;
  Analyzer analyzer;
  const Stmt& body = root->body[0];
  if (IsLoop(body, ForKind::kSerial)) {
    analyzer.Bind(root->var, root->extent);
    if (const std::optional<Stmt> copy = VectorCopy(body, analyzer, vector_bytes))
      kernel.body = MakeFor(ForKind::kParallel, root->var, root->extent, *copy);
    return kernel;
  }
  const int64_t rest = SmallestDivisor(body, root->var.get());
  const int64_t copies = rest > 0 && root->extent % rest == 0 ? root->extent / rest : 1;
  if (copies < 2 || copies > kMostCopies || copies * NodesOf(body) > kMostNodes) return kernel;
  const Expr remainder = MakeVar(root->var->name + "_r");
  analyzer.Bind(remainder, rest);
  Stmt all = CopyInside(body, [&](const Stmt& stmt) {
    std::vector<Stmt> parts;
    for (int64_t i = 0; i < copies; ++i)
      parts.push_back(Expanded(stmt, {{root->var.get(), Add(IntImm(i * rest), remainder)}}, analyzer));
    return MakeSeq(std::move(parts));
  });
  kernel.body = MakeFor(ForKind::kParallel, remainder, rest, std::move(all));
  kernel.blocks = rest;
  return kernel;
}

}  // namespace diapason
