#include "compiler/lower/early_operands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/leaves.h"

namespace diapason {
namespace {

constexpr int64_t kRegistersOfAll = 65536;  // of a multiprocessor
constexpr int64_t kRegistersOfOthers = 64;        // of a thread, for sums and all else
constexpr int64_t kMostAhead = 128;

bool IsProduct(const StmtNode& s) {
  return s.kind == StmtKind::kMma || s.kind == StmtKind::kGroupMma || s.kind == StmtKind::kTensorCopy;
}

class EarlyOperands {
 public:
  EarlyOperands(const KernelFunc& kernel, int* next_buffer)
      : next_buffer_(*next_buffer),
        left_(std::clamp<int64_t>(kRegistersOfAll / std::max<int64_t>(1, kernel.threads) - kRegistersOfOthers, 0, kMostAhead)),
        leaves_(LeavesOf(kernel.body)) {
    for (const BufferDecl& param : kernel.params)
      if (!param.written) params_[param.id] = &param;
    Contains(kernel.body, [&](const StmtNode& s) {
      if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kLocal) local_.insert(s.decl.id);
      return false;
    });
  }

  Stmt Run(const Stmt& body) {
    const size_t barrier = std::find_if(leaves_.begin(), leaves_.end(),
                                        [](const Leaf& leaf) { return leaf.stmt->kind == StmtKind::kBarrier; }) -
                           leaves_.begin();
    const Stmt mapped = MapLeaves(body, [&](size_t i, const Stmt& leaf) {
      std::vector<const StmtNode*> loops;
      return i <= barrier ? leaf : InLoops(leaves_[i], leaf, loops);
    });
    if (decls_.empty()) return body;
    return InsideBlocks(mapped, [&](Stmt inner) {
      inner = MakeSeq({MakeSeq(constants_), MakeSeq(loads_), std::move(inner)});
      for (const BufferDecl& decl : decls_) inner = MakeAlloc(decl, inner);
      return inner;
    });
  }

 private:
  // Of unrolled loops around copies to registers.
  Stmt InLoops(const Leaf& leaf, const Stmt& stmt, std::vector<const StmtNode*>& loops) {
    if (stmt->kind == StmtKind::kStore && local_.contains(stmt->buffer) && stmt->operands.empty())
      return MakeStore(stmt->buffer, stmt->index, Ahead(leaf, loops, stmt->value));
    if (!IsLoop(stmt, ForKind::kUnroll) && !IsLoop(stmt, ForKind::kVectorize) && stmt->kind != StmtKind::kSeq)
      return stmt;
    if (stmt->kind == StmtKind::kFor) loops.push_back(stmt.get());
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(InLoops(leaf, child, loops));
    if (stmt->kind == StmtKind::kFor) loops.pop_back();
    return WithBody(*stmt, std::move(body));
  }

  // Whether a value is an element of an input, or chosen from such and constants, by conditions and indices that load
  // nothing. `constant`: as long as all inputs are.
  bool IsCopy(const Expr& value, bool* constant) const {
    const auto loads = [](const Expr& e) { return LoadsFrom(e, [](int) { return true; }); };
    if (value->kind == ExprKind::kSelect)
      return !loads(value->args[0]) && IsCopy(value->args[1], constant) && IsCopy(value->args[2], constant);
    if (value->kind != ExprKind::kLoad) return value->kind == ExprKind::kFloatImm || value->kind == ExprKind::kIntImm;
    const auto param = params_.find(value->buffer);
    if (param == params_.end() || value->args.size() != 1 || loads(value->args[0])) return false;
    *constant &= param->second->constant;
    return true;
  }

  // The load of the registers that have the value from the kernel's head on, or the value itself.
  Expr Ahead(const Leaf& leaf, const std::vector<const StmtNode*>& loops, const Expr& value) {
    bool constant = true;
    Expr early = value;
    const StmtNode* threads = nullptr;
    if (value->kind == ExprKind::kFloatImm || value->kind == ExprKind::kIntImm || !IsCopy(value, &constant) ||
        !IsKnownAt(leaves_.front(), leaf, &early, &threads))
      return value;
    BufferDecl own;
    own.elements = 1;
    Expr place = IntImm(0);
    VarMap renamed;
    if (threads != nullptr) renamed[threads->var.get()] = MakeVar(threads->var->name);
    for (const StmtNode* loop : loops) {
      own.elements *= loop->extent;
      place = Add(Mul(place, IntImm(loop->extent)), loop->var);
      renamed[loop->var.get()] = MakeVar(loop->var->name);
    }
    const int64_t registers = (own.elements * BytesOf(value->dtype) + 3) / 4;
    if (registers > left_) return value;
    left_ -= registers;
    own.id = next_buffer_++;
    own.name = "early" + std::to_string(own.id);
    own.dtype = value->dtype;
    own.scope = Scope::kLocal;
    Stmt stmt = MakeStore(own.id, Substitute(place, renamed), Substitute(early, renamed));
    for (size_t l = loops.size(); l-- > 0;)
      stmt = MakeFor(loops[l]->for_kind, renamed[loops[l]->var.get()], loops[l]->extent, stmt);
    if (threads != nullptr) stmt = MakeFor(ForKind::kThreadX, renamed[threads->var.get()], threads->extent, stmt);
    (constant ? constants_ : loads_).push_back(stmt);
    decls_.push_back(own);
    return Load(own.id, value->dtype, {place});
  }

  int& next_buffer_;
  int64_t left_;  // registers
  const std::vector<Leaf> leaves_;
  std::set<int> local_;
  std::map<int, const BufferDecl*> params_;
  std::vector<BufferDecl> decls_;
  std::vector<Stmt> constants_, loads_;
};

}  // namespace

KernelFunc WithEarlyOperands(KernelFunc kernel, int* next_buffer) {
  if (kernel.body == nullptr || Contains(kernel.body, IsProduct)) return kernel;
  kernel.body = EarlyOperands(kernel, next_buffer).Run(kernel.body);
  return kernel;
}

}  // namespace diapason
