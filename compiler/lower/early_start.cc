#include "compiler/lower/early_start.h"

#include <algorithm>
#include <set>
#include <vector>

namespace diapason {
namespace {

bool Any(const Stmt& stmt, const std::function<bool(const StmtNode&)>& is) {
  return is(*stmt) || std::any_of(stmt->body.begin(), stmt->body.end(), [&](const Stmt& s) { return Any(s, is); });
}

bool Loads(const Expr& e, const std::function<bool(int)>& from) {
  bool found = false;
  if (e) Visit(e, [&](const ExprNode& node) { found |= node.kind == ExprKind::kLoad && from(node.buffer); });
  return found;
}

// A statement that runs its body once, in every thread.
bool RunsBodyOnce(const StmtNode& s) {
  const bool place =
      s.for_kind == ForKind::kBlockX || s.for_kind == ForKind::kThreadX || s.for_kind == ForKind::kCluster;
  return s.kind == StmtKind::kSeq || s.kind == StmtKind::kAlloc || (s.kind == StmtKind::kFor && place) ||
         (s.kind == StmtKind::kLet && !Loads(s.value, [](int) { return true; }));
}

// Statements that run once in every thread, in order, those that hold others left out.
void Leaves(const Stmt& stmt, std::vector<Stmt>* leaves) {
  if (stmt == nullptr) return;
  if (!RunsBodyOnce(*stmt)) {
    leaves->push_back(stmt);
    return;
  }
  for (const Stmt& child : stmt->body) Leaves(child, leaves);
}

// The tree with `leaf` applied to those statements.
Stmt MapLeaves(const Stmt& stmt, const std::function<Stmt(const Stmt&)>& leaf) {
  if (stmt == nullptr || !RunsBodyOnce(*stmt)) return stmt == nullptr ? nullptr : leaf(stmt);
  std::vector<Stmt> body;
  for (const Stmt& child : stmt->body) body.push_back(MapLeaves(child, leaf));
  if (stmt->kind == StmtKind::kSeq) return MakeSeq(std::move(body));
  StmtNode copy = *stmt;
  copy.body = std::move(body);
  return std::make_shared<const StmtNode>(std::move(copy));
}

class EarlyCopies {
 public:
  explicit EarlyCopies(const KernelFunc& kernel) {
    for (const BufferDecl& param : kernel.params) (IsAwaited(param) ? awaited_ : constants_).insert(param.id);
  }

  // The loop in two, or as it is where it is no loop of copies of both.
  Stmt Split(const Stmt& stmt) const {
    if (stmt->kind != StmtKind::kFor || !OnlyCopies(stmt)) return stmt;
    const Stmt first = Keep(stmt, [this](const StmtNode& s) { return IsCopyOfConstants(s); });
    const Stmt second = Keep(stmt, [this](const StmtNode& s) { return !IsCopyOfConstants(s); });
    if (first == nullptr || second == nullptr || !ReadsAwaited(second)) return stmt;
    return Apart(first, second) ? MakeSeq({first, second}) : stmt;
  }

 private:
  static bool OnlyCopies(const Stmt& stmt) {
    return !Any(stmt, [](const StmtNode& s) {
      const bool holds =
          s.kind == StmtKind::kFor || s.kind == StmtKind::kSeq || s.kind == StmtKind::kLet || s.kind == StmtKind::kIf;
      return !holds && s.kind != StmtKind::kCommit && !(s.kind == StmtKind::kStore && s.async);
    });
  }

  bool Reads(const StmtNode& s, const std::set<int>& buffers) const {
    const auto from = [&](int buffer) { return buffers.count(buffer) != 0; };
    return Loads(s.value, from) || Loads(s.index, from) || Loads(s.condition, from);
  }

  bool ReadsAwaited(const Stmt& stmt) const {
    return Any(stmt, [this](const StmtNode& s) { return Reads(s, awaited_); });
  }

  bool IsCopyOfConstants(const StmtNode& s) const {
    return s.kind == StmtKind::kStore && Reads(s, constants_) && !Reads(s, awaited_);
  }

  // Neither part writes what the other one writes or reads.
  static bool Apart(const Stmt& first, const Stmt& second) {
    std::set<int> written[2];
    const Stmt parts[] = {first, second};
    for (int i = 0; i < 2; ++i)
      Any(parts[i], [&](const StmtNode& s) {
        if (s.kind == StmtKind::kStore) written[i].insert(s.buffer);
        return false;
      });
    for (int i = 0; i < 2; ++i) {
      const std::set<int>& others = written[1 - i];
      const auto of_other = [&](int buffer) { return others.count(buffer) != 0; };
      const bool meets = Any(parts[i], [&](const StmtNode& s) {
        return (s.kind == StmtKind::kStore && of_other(s.buffer)) || Loads(s.value, of_other) ||
               Loads(s.index, of_other) || Loads(s.condition, of_other);
      });
      if (meets) return false;
    }
    return true;
  }

  // The loops with those of their innermost statements that `keep` holds for; null where there are none.
  static Stmt Keep(const Stmt& stmt, const std::function<bool(const StmtNode&)>& keep) {
    if (stmt->body.empty()) return keep(*stmt) ? stmt : nullptr;
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body)
      if (Stmt kept = Keep(child, keep)) body.push_back(std::move(kept));
    if (body.empty()) return nullptr;
    if (stmt->kind == StmtKind::kSeq) return MakeSeq(std::move(body));
    StmtNode copy = *stmt;
    copy.body = std::move(body);
    return std::make_shared<const StmtNode>(std::move(copy));
  }

  std::set<int> awaited_, constants_;
};

bool IsPartOfSums(const Stmt& stmt) {
  const auto meets = [](const StmtNode& s) { return s.kind == StmtKind::kBarrier || s.kind == StmtKind::kWait; };
  return Any(stmt, [&](const StmtNode& s) {
    return s.kind == StmtKind::kMma || s.kind == StmtKind::kGroupMma ||
           (s.kind == StmtKind::kGroupSync && s.sync == GroupSync::kWait) ||
           (s.kind == StmtKind::kFor && s.for_kind == ForKind::kSerial && Any(s.body[0], meets));
  });
}

// The number of leaves before the place where the sums are complete.
size_t EndOfSums(const KernelFunc& kernel, const std::vector<Stmt>& leaves) {
  for (size_t i = leaves.size(); i > 0; --i)
    if (IsPartOfSums(leaves[i - 1])) return i;
  const auto writes = [&](const Stmt& leaf) {
    return Any(leaf, [&](const StmtNode& s) {
      return s.kind == StmtKind::kStore && std::any_of(kernel.params.begin(), kernel.params.end(),
                                                       [&](const BufferDecl& p) { return p.id == s.buffer; });
    });
  };
  return std::find_if(leaves.begin(), leaves.end(), writes) - leaves.begin();
}

}  // namespace

bool IsAwaited(const BufferDecl& decl) { return decl.scope == Scope::kGlobal && !decl.constant; }

Stmt WithEarlyStart(const KernelFunc& kernel, EarlyStart start) {
  Stmt body = kernel.body;
  if (start != EarlyStart::kNever) {
    const EarlyCopies copies(kernel);
    body = MapLeaves(body, [&](const Stmt& leaf) { return copies.Split(leaf); });
  }
  std::vector<Stmt> leaves;
  Leaves(body, &leaves);
  const size_t end = start == EarlyStart::kAtOnce ? 0 : EndOfSums(kernel, leaves);
  if (end == 0) return MakeSeq({MakeLaunchDependents(), body});
  size_t seen = 0;
  return MapLeaves(body, [&](const Stmt& leaf) {
    return ++seen == end ? MakeSeq({leaf, MakeLaunchDependents()}) : leaf;
  });
}

}  // namespace diapason
