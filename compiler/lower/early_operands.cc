#include "compiler/lower/early_operands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/leaves.h"
#include "compiler/lower/registers_ahead.h"

namespace diapason {
namespace {

constexpr int64_t kRegistersOfOthers = 64;  // of a thread, for sums and all else
constexpr int64_t kMostAhead = 128;
constexpr int64_t kBlocksTogether = 2;  // that compilers leave registers for where a kernel does not say how many

// Registers that a thread may hold inputs in.
int64_t RegistersAhead(const KernelFunc& kernel) {
  return std::clamp<int64_t>(RegistersOfThread(kernel, kBlocksTogether) - kRegistersOfOthers, 0, kMostAhead);
}

bool IsProduct(const StmtNode& s) {
  return s.kind == StmtKind::kMma || s.kind == StmtKind::kGroupMma || s.kind == StmtKind::kTensorCopy;
}

class EarlyOperands {
 public:
  EarlyOperands(const KernelFunc& kernel, int* next_buffer)
      : next_buffer_(*next_buffer), left_(RegistersAhead(kernel)), leaves_(LeavesOf(kernel.body)) {
    for (const BufferDecl& param : kernel.params)
      if (!param.written) params_[param.id] = &param;
    Contains(kernel.body, [&](const StmtNode& s) {
      if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kShared) shared_.insert(s.decl.id);
      return false;
    });
  }

  Stmt Run(const Stmt& body) {
    const size_t barrier = std::find_if(leaves_.begin(), leaves_.end(),
                                        [](const Leaf& leaf) { return leaf.stmt->kind == StmtKind::kBarrier; }) -
                           leaves_.begin();
    if (barrier == leaves_.size()) return body;
    while (first_ < barrier && !Contains(leaves_[first_].stmt, Waits())) ++first_;
    Stmt mapped = MapLeaves(
        body, [&](size_t i, const Stmt& leaf) { return i <= barrier ? leaf : InLoops(leaves_[i], leaf, {}); });
    if (decls_.empty()) return body;
    mapped = MapLeaves(mapped, [&](size_t i, const Stmt& leaf) {
      return i == first_ ? MakeSeq({MakeSeq(loads_), leaf}) : leaf;
    });
    return InsideBlocks(mapped, [&](Stmt inner) {
      inner = MakeSeq({MakeSeq(constants_), std::move(inner)});
      for (const BufferDecl& decl : decls_) inner = MakeAlloc(decl, inner);
      return inner;
    });
  }

 private:
  // Whether a statement reads what another kernel may write: the kernel waits for that one first.
  std::function<bool(const StmtNode&)> Waits() const {
    const auto is_input = [this](int buffer) {
      const auto param = params_.find(buffer);
      return param != params_.end() && !param->second->constant;
    };
    return [is_input](const StmtNode& s) {
      return LoadsFrom(s.value, is_input) || LoadsFrom(s.index, is_input) || LoadsFrom(s.condition, is_input);
    };
  }

  static bool IsOverThreads(const StmtNode* s) { return s->kind == StmtKind::kFor && s->for_kind == ForKind::kThreadX; }

  // What is around a store: loops, and the condition under which it happens (null: always).
  struct Around {
    std::vector<const StmtNode*> loops;
    Expr condition;
  };

  // Of unrolled loops, and loops over threads, around stores to registers and to the results.
  Stmt InLoops(const Leaf& leaf, const Stmt& stmt, const Around& around) {
    if (stmt->kind == StmtKind::kStore && stmt->operands.empty() && !shared_.contains(stmt->buffer))
      return MakeStore(stmt->buffer, stmt->index, Replaced(leaf, around, stmt->value), stmt->async);
    const bool condition = stmt->kind == StmtKind::kIf && stmt->body.size() == 1 && !LoadsAnything(stmt->condition);
    if (!condition && !IsLoop(stmt, ForKind::kUnroll) && !IsLoop(stmt, ForKind::kVectorize) &&
        !IsLoop(stmt, ForKind::kThreadX) && stmt->kind != StmtKind::kSeq)
      return stmt;
    Around inner = around;
    if (stmt->kind == StmtKind::kFor) inner.loops.push_back(stmt.get());
    if (condition) inner.condition = inner.condition ? And(inner.condition, stmt->condition) : stmt->condition;
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(InLoops(leaf, child, inner));
    return WithBody(*stmt, std::move(body));
  }

  // A value that is a copy, or the copies that it is computed from, from registers.
  Expr Replaced(const Leaf& leaf, const Around& around, const Expr& value) {
    bool constant = true;
    if (value->kind != ExprKind::kIntImm && value->kind != ExprKind::kFloatImm && IsCopy(value, &constant))
      return Ahead(leaf, around, value, constant);
    if (value->kind == ExprKind::kSelect || value->args.empty() || value->kind == ExprKind::kLoad) return value;
    std::vector<Expr> args;
    for (const Expr& arg : value->args) args.push_back(Replaced(leaf, around, arg));
    return Rebuild(value, std::move(args));
  }

  // Whether a value is an element of an input, or chosen from such and constants, by conditions and indices that load
  // nothing. `constant`: as long as all inputs are.
  bool IsCopy(const Expr& value, bool* constant) const {
    if (value->kind == ExprKind::kSelect)
      return !LoadsAnything(value->args[0]) && IsCopy(value->args[1], constant) && IsCopy(value->args[2], constant);
    if (value->kind != ExprKind::kLoad) return value->kind == ExprKind::kFloatImm || value->kind == ExprKind::kIntImm;
    const auto param = params_.find(value->buffer);
    if (param == params_.end() || value->args.size() != 1 || LoadsAnything(value->args[0])) return false;
    *constant &= param->second->constant;
    return true;
  }

  // The load of the registers that have the value from the kernel's head on, or the value itself.
  Expr Ahead(const Leaf& leaf, const Around& around, const Expr& value, bool constant) {
    Expr early =
        around.condition == nullptr ? value : Select(around.condition, value, IdentityOf(Combiner::kSum, value->dtype));
    const StmtNode* threads = nullptr;
    if (!IsKnownAt(leaves_.front(), leaf, &early, &threads)) return value;
    // Constants are loaded outside of all loops over threads, others perhaps inside of one: in its threads then.
    const std::vector<const StmtNode*>& there = leaves_[first_].around;
    const auto found = std::find_if(there.begin(), there.end(), IsOverThreads);
    const StmtNode* const outer = constant || found == there.end() ? nullptr : *found;
    const auto own = std::find_if(around.loops.begin(), around.loops.end(), IsOverThreads);
    if (own != around.loops.end() && threads != nullptr) return value;
    const StmtNode* const inner = own != around.loops.end() ? *own : threads;
    if (outer != nullptr && inner != nullptr && inner->extent != outer->extent) return value;
    for (const Known& known : known_)
      if (known.loops == around.loops && Equal(known.value, early)) return known.own;
    VarMap there_threads;
    ValueAhead ahead{.name = "early"};
    const auto add_threads = [&](const StmtNode* loop) {
      if (outer != nullptr)
        there_threads[loop->var.get()] = outer->var;
      else
        ahead.filled.push_back(loop);
    };
    if (threads != nullptr) add_threads(threads);
    for (const StmtNode* loop : around.loops) {
      if (IsOverThreads(loop)) {
        add_threads(loop);
        continue;
      }
      ahead.filled.push_back(loop);
      ahead.elements.push_back(loop);
    }
    ahead.value = Substitute(early, there_threads);
    int next = next_buffer_;
    const LoadedAhead made = LoadAhead(ahead, &next);
    // Halves of one load stay in pairs until they are read.
    const int64_t registers = (made.decl.elements * BytesOf(value->dtype) + 3) / 4;
    if (registers > left_) return value;
    left_ -= registers;
    next_buffer_ = next;
    (constant ? constants_ : loads_).push_back(made.fill);
    decls_.push_back(made.decl);
    known_.push_back({around.loops, early, made.own});
    return made.own;
  }

  // What is loaded ahead already, and the registers that have it.
  struct Known {
    std::vector<const StmtNode*> loops;
    Expr value, own;
  };

  int& next_buffer_;
  int64_t left_;  // registers
  const std::vector<Leaf> leaves_;
  size_t first_ = 0;  // the leaf in front of which inputs are loaded that are no constants
  std::set<int> shared_;
  std::map<int, const BufferDecl*> params_;
  std::vector<BufferDecl> decls_;
  std::vector<Known> known_;
  std::vector<Stmt> constants_, loads_;
};

}  // namespace

KernelFunc WithEarlyOperands(KernelFunc kernel, int* next_buffer) {
  if (kernel.body == nullptr || Contains(kernel.body, IsProduct)) return kernel;
  kernel.body = EarlyOperands(kernel, next_buffer).Run(kernel.body);
  return kernel;
}

}  // namespace diapason
