#include "compiler/lower/early_start.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/lower/leaves.h"

namespace diapason {
namespace {

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
    return Writes(first, second) || Writes(second, first) ? stmt : MakeSeq({first, second});
  }

 private:
  static bool OnlyCopies(const Stmt& stmt) {
    return !Contains(stmt, [](const StmtNode& s) {
      const bool holds =
          s.kind == StmtKind::kFor || s.kind == StmtKind::kSeq || s.kind == StmtKind::kLet || s.kind == StmtKind::kIf;
      return !holds && s.kind != StmtKind::kCommit && s.kind != StmtKind::kTensorCopy &&
             !(s.kind == StmtKind::kStore && s.async);
    });
  }

  static bool Reads(const StmtNode& s, const std::set<int>& buffers) {
    const auto from = [&](int buffer) { return buffers.count(buffer) != 0; };
    return LoadsFrom(s.value, from) || LoadsFrom(s.index, from) || LoadsFrom(s.condition, from);
  }

  bool ReadsAwaited(const Stmt& stmt) const {
    return Contains(stmt, [this](const StmtNode& s) { return Reads(s, awaited_); });
  }

  bool IsCopyOfConstants(const StmtNode& s) const {
    return (s.kind == StmtKind::kStore || s.kind == StmtKind::kTensorCopy) && Reads(s, constants_) &&
           !Reads(s, awaited_);
  }

  // Whether the first one writes what the other one reads or writes.
  static bool Writes(const Stmt& one, const Stmt& other) {
    std::set<int> written;
    Contains(one, [&](const StmtNode& s) {
      if (s.kind == StmtKind::kStore || s.kind == StmtKind::kTensorCopy) written.insert(s.buffer);
      return false;
    });
    return Contains(other, [&](const StmtNode& s) {
      return (s.kind == StmtKind::kStore && written.count(s.buffer) != 0) || Reads(s, written);
    });
  }

  // The loops with those of their innermost statements that `keep` holds for; null where there are none.
  static Stmt Keep(const Stmt& stmt, const std::function<bool(const StmtNode&)>& keep) {
    if (stmt->body.empty()) return keep(*stmt) ? stmt : nullptr;
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body)
      if (Stmt kept = Keep(child, keep)) body.push_back(std::move(kept));
    if (body.empty()) return nullptr;
    return WithBody(*stmt, std::move(body));
  }

  std::set<int> awaited_, constants_;
};

bool IsPartOfSums(const Stmt& stmt) {
  const auto meets = [](const StmtNode& s) { return s.kind == StmtKind::kBarrier || s.kind == StmtKind::kWait; };
  return Contains(stmt, [&](const StmtNode& s) {
    return s.kind == StmtKind::kMma || s.kind == StmtKind::kGroupMma ||
           (s.kind == StmtKind::kGroupSync && s.sync == GroupSync::kWait) ||
           (s.kind == StmtKind::kFor && s.for_kind == ForKind::kSerial && Contains(s.body[0], meets));
  });
}

// The number of leaves before the place where the sums are complete.
size_t EndOfSums(const KernelFunc& kernel, const std::vector<Leaf>& leaves) {
  for (size_t i = leaves.size(); i > 0; --i)
    if (IsPartOfSums(leaves[i - 1].stmt)) return i;
  const auto writes = [&](const Leaf& leaf) {
    return Contains(leaf.stmt, [&](const StmtNode& s) {
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
    body = MapLeaves(body, [&](size_t, const Stmt& leaf) { return copies.Split(leaf); });
  }
  const std::vector<Leaf> leaves = LeavesOf(body);
  const size_t end = start == EarlyStart::kAtOnce ? 0 : EndOfSums(kernel, leaves);
  if (end == 0) return MakeSeq({MakeLaunchDependents(), body});
  return MapLeaves(body, [&](size_t number, const Stmt& leaf) {
    return number + 1 == end ? MakeSeq({leaf, MakeLaunchDependents()}) : leaf;
  });
}

}  // namespace diapason
