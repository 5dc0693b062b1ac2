#include "compiler/lower/leaves.h"

#include <algorithm>
#include <utility>

namespace diapason {
namespace {

bool RunsOnce(const StmtNode& s) {
  return RunsBodyOnce(s, [](int) { return true; });
}

void AddLeaves(const Stmt& stmt, std::vector<const StmtNode*>& around, std::vector<Leaf>& leaves) {
  if (!RunsOnce(*stmt)) return leaves.push_back({stmt, around});
  around.push_back(stmt.get());
  for (const Stmt& child : stmt->body) AddLeaves(child, around, leaves);
  around.pop_back();
}

Stmt MapFrom(const Stmt& stmt, size_t& number, const std::function<Stmt(size_t number, const Stmt& leaf)>& leaf) {
  if (!RunsOnce(*stmt)) return leaf(number++, stmt);
  std::vector<Stmt> body;
  for (const Stmt& child : stmt->body)
    if (Stmt mapped = MapFrom(child, number, leaf)) body.push_back(std::move(mapped));
  return body.empty() ? nullptr : WithBody(*stmt, std::move(body));
}

}  // namespace

bool RunsBodyOnce(const StmtNode& s, const std::function<bool(int buffer)>& awaited) {
  const bool place =
      s.for_kind == ForKind::kBlockX || s.for_kind == ForKind::kThreadX || s.for_kind == ForKind::kCluster;
  return s.kind == StmtKind::kSeq || s.kind == StmtKind::kAlloc || (s.kind == StmtKind::kFor && place) ||
         (s.kind == StmtKind::kLet && !LoadsFrom(s.value, awaited));
}

std::vector<Leaf> LeavesOf(const Stmt& body) {
  std::vector<Leaf> leaves;
  std::vector<const StmtNode*> around;
  if (body != nullptr) AddLeaves(body, around, leaves);
  return leaves;
}

Stmt MapLeaves(const Stmt& body, const std::function<Stmt(size_t number, const Stmt& leaf)>& leaf) {
  size_t number = 0;
  return body == nullptr ? nullptr : MapFrom(body, number, leaf);
}

size_t FirstProduct(const std::vector<Leaf>& leaves) {
  const auto multiplies = [](const StmtNode& s) { return s.kind == StmtKind::kMma || s.kind == StmtKind::kGroupMma; };
  return std::find_if(leaves.begin(), leaves.end(), [&](const Leaf& leaf) { return Contains(leaf.stmt, multiplies); }) -
         leaves.begin();
}

bool IsKnownAt(const Leaf& there, const Leaf& leaf, Expr* e, const StmtNode** threads) {
  for (size_t i = leaf.around.size(); i-- > 0;) {
    const StmtNode* around = leaf.around[i];
    if (!around->var || !UsesVar(*e, around->var.get())) continue;
    if (around->kind == StmtKind::kLet) {
      *e = Substitute(*e, {{around->var.get(), around->value}});
    } else if (around->for_kind == ForKind::kThreadX) {
      if (*threads != nullptr) return false;
      *threads = around;
    } else if (std::find(there.around.begin(), there.around.end(), around) == there.around.end()) {
      return false;
    }
  }
  return true;
}

Stmt InsideBlocks(const Stmt& stmt, const std::function<Stmt(Stmt)>& wrap) {
  const auto of_blocks = [](const StmtNode& s) {
    return s.kind == StmtKind::kFor && (s.for_kind == ForKind::kBlockX || s.for_kind == ForKind::kCluster);
  };
  if (stmt->body.size() == 1 && Contains(stmt, of_blocks)) return WithBody(*stmt, {InsideBlocks(stmt->body[0], wrap)});
  return wrap(stmt);
}

}  // namespace diapason
