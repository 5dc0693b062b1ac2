#include "compiler/lower/roles.h"

#include <utility>
#include <vector>

#include "compiler/lower/registers_ahead.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

Stmt WithBarriersOf(int64_t threads, const Stmt& stmt) {
  if (stmt->kind == StmtKind::kBarrier) return MakeBarrier(threads);
  if (stmt->body.empty()) return stmt;
  std::vector<Stmt> body;
  for (const Stmt& child : stmt->body) body.push_back(WithBarriersOf(threads, child));
  return WithBody(*stmt, std::move(body));
}

// The statement without its allocations of shared memory, which are added to the list: both roles use them.
Stmt WithoutShared(const Stmt& stmt, std::vector<BufferDecl>* shared) {
  if (stmt->body.empty()) return stmt;
  if (stmt->kind == StmtKind::kAlloc && stmt->decl.scope == Scope::kShared) {
    shared->push_back(stmt->decl);
    return WithoutShared(stmt->body[0], shared);
  }
  std::vector<Stmt> body;
  for (const Stmt& child : stmt->body) body.push_back(WithoutShared(child, shared));
  return WithBody(*stmt, std::move(body));
}

class RoleSplitter {
 public:
  explicit RoleSplitter(const KernelFunc& kernel)
      : threads_(kernel.threads), kernel_(kernel), registers_(RegistersWithProducer(kernel.threads)) {}

  // Inside of what holds for all threads of a block.
  Stmt Split(const Stmt& stmt) const {
    if (stmt->kind == StmtKind::kAlloc || stmt->kind == StmtKind::kLet || IsLoop(stmt, ForKind::kBlockX) ||
        IsLoop(stmt, ForKind::kCluster))
      return WithBody(*stmt, {Split(stmt->body[0])});
    // What lets the next kernel start may stand in front.
    if (stmt->kind == StmtKind::kSeq && stmt->body.size() == 2 && stmt->body[0]->kind == StmtKind::kLaunchDependents)
      return MakeSeq({stmt->body[0], Split(stmt->body[1])});
    const Expr thread = MakeVar("role");
    std::vector<BufferDecl> shared;
    const Stmt others = MakeSeq({Set(registers_.others, true), WithBarriersOf(threads_, WithoutShared(stmt, &shared))});
    const Stmt producer =
        MakeSeq({Set(registers_.producer, false), Role(Eq(thread, IntImm(threads_)), kernel_.producer)});
    Stmt all =
        MakeFor(ForKind::kThreadX, thread, threads_ + kLanesOfGroup,
                MakeSeq({MakeIf(Eq(thread, IntImm(0)), kernel_.before_roles), MakeBarrier(),
                         Role(Lt(thread, IntImm(threads_)), others), Role(Le(IntImm(threads_), thread), producer)}));
    for (auto decl = shared.rbegin(); decl != shared.rend(); ++decl) all = MakeAlloc(*decl, all);
    return all;
  }

 private:
  Stmt Role(const Expr& condition, Stmt body) const {
    return (kernel_.constants_first ? MakeRole : MakeIf)(condition, std::move(body));
  }

  static Stmt Set(int64_t registers, bool more) { return registers > 0 ? MakeSetRegisters(registers, more) : nullptr; }

  const int64_t threads_;
  const KernelFunc& kernel_;
  const RegistersOfRole registers_;
};

}  // namespace

KernelFunc WithRoles(KernelFunc kernel) {
  if (kernel.producer == nullptr) return kernel;
  kernel.body = RoleSplitter(kernel).Split(kernel.body);
  kernel.producer = kernel.before_roles = nullptr;
  kernel.threads += kLanesOfGroup;
  kernel.producers = kLanesOfGroup;
  return kernel;
}

}  // namespace diapason
