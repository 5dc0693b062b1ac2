#include "compiler/codegen/shared_values.h"

#include <algorithm>

#include "compiler/codegen/passes.h"

namespace diapason {
namespace {

size_t Mix(size_t hash, size_t more) { return hash * 0x9e3779b97f4a7c15 + more + (hash >> 29); }

// Equal trees have equal hashes.
size_t HashOf(const Expr& e) {
  size_t hash = Mix(static_cast<size_t>(e->kind), static_cast<size_t>(e->dtype));
  if (e->kind == ExprKind::kVar) return Mix(hash, std::hash<const void*>()(e.get()));
  hash = Mix(Mix(hash, static_cast<size_t>(e->value)), std::hash<double>()(e->fvalue));
  if (e->kind == ExprKind::kCall) hash = Mix(hash, std::hash<std::string>()(e->name));
  hash = Mix(hash, static_cast<size_t>(e->buffer));
  for (const Expr& arg : e->args) hash = Mix(hash, HashOf(arg));
  return hash;
}

void StoredBuffers(const StmtNode& stmt, std::map<int, const StmtNode*>& into, const StmtNode& by) {
  if (stmt.kind == StmtKind::kStore) into[stmt.buffer] = &by;
  for (const Stmt& child : stmt.body) StoredBuffers(*child, into, by);
}

bool IsArithmetic(ExprKind kind) {
  switch (kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kMin:
    case ExprKind::kMax:
    case ExprKind::kCast:
    case ExprKind::kCall: return true;
    default: return false;
  }
}

}  // namespace

void SharedValues::Written(const StmtNode& by) { StoredBuffers(by, writer_, by); }

void SharedValues::Enter(const StmtNode& sequence, int depth, const IsVariable& is_variable) {
  Run run;
  run.depth = depth;
  const std::map<int, const StmtNode*> before = writer_;
  for (const Stmt& child : sequence.body) {
    const bool vector = child->kind == StmtKind::kFor && child->for_kind == ForKind::kVectorize;
    if (vector && child->body[0]->kind == StmtKind::kStore) Walk(child->body[0]->value, *child, is_variable, run);
    Written(*child);
  }
  writer_ = before;
  std::erase_if(run.values, [](const auto& entry) { return entry.second.uses < 2; });
  runs_.push_back(std::move(run));
}

void SharedValues::Walk(const Expr& e, const StmtNode& loop, const IsVariable& is_variable, Run& run) {
  if (!UsesVar(e, loop.var.get())) {
    if (HasLoad(e)) Count(e, loop.extent, run);
    return;
  }
  if (e->kind == ExprKind::kLoad) {
    if (!is_variable(*e)) Count(e, loop.extent, run);
    return;
  }
  // What stands in a branch of a select may not be computed in any case.
  if (e->kind == ExprKind::kSelect) {
    Count(e, loop.extent, run);
    return;
  }
  if (!IsArithmetic(e->kind) || !Count(e, loop.extent, run)) return;
  for (const Expr& arg : e->args) Walk(arg, loop, is_variable, run);
}

// True for the first use.
bool SharedValues::Count(const Expr& e, int64_t lanes, Run& run) {
  const size_t hash = HashOf(e);
  if (Value* known = FindIn(run, hash, e, lanes)) {
    ++known->uses;
    return false;
  }
  run.values.emplace(hash, Value{e, WrittenBuffers(e), lanes, 1, run.depth, ""});
  return true;
}

SharedValues::Value* SharedValues::FindIn(Run& run, size_t hash, const Expr& e, int64_t lanes) {
  const auto [begin, end] = run.values.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (it->second.lanes == lanes && Equal(it->second.e, e) && it->second.written == WrittenBuffers(e))
      return &it->second;
  return nullptr;
}

std::map<int, const StmtNode*> SharedValues::WrittenBuffers(const Expr& e) const {
  std::map<int, const StmtNode*> written;
  Visit(e, [&](const ExprNode& node) {
    if (node.kind != ExprKind::kLoad) return;
    const auto it = writer_.find(node.buffer);
    written[node.buffer] = it == writer_.end() ? nullptr : it->second;
  });
  return written;
}

SharedValues::Value* SharedValues::Find(const Expr& e, int64_t lanes) {
  if (runs_.empty()) return nullptr;
  const size_t hash = HashOf(e);
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run)
    if (Value* known = FindIn(*run, hash, e, lanes)) return known;
  return nullptr;
}

}  // namespace diapason
