#include "compiler/lower/remote_loads.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/leaves.h"
#include "compiler/lower/registers_ahead.h"

namespace diapason {
namespace {

// Of a thread. The parts of its results are as many as its block's products left in its accumulators.
constexpr int64_t kMostOfParts = 128;
// In front of the products, which need registers too.
constexpr int64_t kMostInFront = 64;
constexpr int64_t kRegistersOfRest = 64;  // of a thread, for all but its buffers

class RemoteLoads {
 public:
  RemoteLoads(const KernelFunc& kernel, int* next_buffer) : next_buffer_(*next_buffer), leaves_(LeavesOf(kernel.body)) {
    int64_t held = 0;
    Contains(kernel.body, [&](const StmtNode& s) {
      if (s.kind != StmtKind::kAlloc || s.decl.scope != Scope::kLocal) return false;
      local_.insert(s.decl.id);
      held += RegistersOf(s.decl);
      return false;
    });
    const int64_t own = RegistersOfThread(kernel, /*blocks=*/1);
    left_in_front_ = std::clamp<int64_t>(own - held - kRegistersOfRest, 0, kMostInFront);
    for (const BufferDecl& param : kernel.params)
      if (!param.written) params_[param.id] = &param;
    product_ = FirstProduct(leaves_);
  }

  Stmt Run(const Stmt& body) {
    Stmt mapped = MapLeaves(body, [this](size_t i, const Stmt& leaf) { return OfLeaf(i, leaf); });
    if (decls_.empty()) return body;
    mapped = MapLeaves(mapped, [this](size_t i, const Stmt& leaf) {
      std::vector<Stmt> here;
      if (i == 0) here.push_back(MakeSeq(constants_in_front_));
      if (i == product_) here.push_back(MakeSeq(inputs_in_front_));
      here.push_back(leaf);
      return MakeSeq(std::move(here));
    });
    return InsideBlocks(mapped, [this](Stmt inner) {
      for (const BufferDecl& decl : decls_) inner = MakeAlloc(decl, inner);
      return inner;
    });
  }

 private:
  // What is around a store: loops, from the outermost, and the condition under which it happens (null: always).
  struct Around {
    std::vector<const StmtNode*> loops{};
    Expr condition{};
  };

  struct Known {
    Around around;
    Expr load;
    LoadedAhead registers;
    const BufferDecl* in_front = nullptr;  // the parameter, where they are filled in front of the products
  };

  Stmt OfLeaf(size_t number, const Stmt& leaf) {
    const bool before_products = number < product_ && product_ < leaves_.size();
    if (before_products || !IsPlain(*leaf) || !HasRemoteResults(*leaf, true)) return leaf;
    known_.clear();
    leaf_ = number;
    several_ = HasRemoteResults(*leaf, false);
    const int first_buffer = next_buffer_;
    const int64_t left = left_in_front_;
    const Stmt mapped = InLoops(leaf, {});
    int64_t registers = 0;
    for (const Known& known : known_) registers += RegistersOf(known.registers.decl);
    if (registers > kMostOfParts) {
      next_buffer_ = first_buffer;
      left_in_front_ = left;
      return leaf;
    }
    std::vector<Stmt> all;
    for (const Known& known : known_) {
      decls_.push_back(known.registers.decl);
      (known.in_front == nullptr  ? all
       : known.in_front->constant ? constants_in_front_
                                  : inputs_in_front_)
          .push_back(known.registers.fill);
    }
    all.push_back(mapped);
    return MakeSeq(std::move(all));
  }

  // Whether it is unrolled loops around stores, which happen whatever is loaded.
  static bool IsPlain(const StmtNode& s) {
    const bool here = s.kind == StmtKind::kFor     ? s.for_kind == ForKind::kUnroll || s.for_kind == ForKind::kVectorize
                      : s.kind == StmtKind::kIf    ? !LoadsAnything(s.condition)
                      : s.kind == StmtKind::kStore ? !s.async && s.operands.empty()
                                                   : s.kind == StmtKind::kSeq;
    return here && std::all_of(s.body.begin(), s.body.end(), [](const Stmt& child) { return IsPlain(*child); });
  }

  // Whether it stores what it computes from other blocks' memory. `counts`: a store here counts; otherwise one in an
  // unrolled loop does, which stores several results.
  static bool HasRemoteResults(const StmtNode& s, bool counts) {
    if (s.kind == StmtKind::kStore) {
      bool remote = false;
      Visit(s.value, [&](const ExprNode& e) { remote |= e.kind == ExprKind::kLoad && RankOf(e) != nullptr; });
      return counts && remote;
    }
    counts |= s.kind == StmtKind::kFor && s.for_kind == ForKind::kUnroll && s.extent > 1;
    return std::any_of(s.body.begin(), s.body.end(),
                       [&](const Stmt& child) { return HasRemoteResults(*child, counts); });
  }

  Stmt InLoops(const Stmt& stmt, const Around& around) {
    if (stmt->kind == StmtKind::kStore) return MakeStore(stmt->buffer, stmt->index, Replaced(around, stmt->value));
    Around inner = around;
    if (stmt->kind == StmtKind::kFor) inner.loops.push_back(stmt.get());
    if (stmt->kind == StmtKind::kIf)
      inner.condition = inner.condition ? And(inner.condition, stmt->condition) : stmt->condition;
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(InLoops(child, inner));
    return WithBody(*stmt, std::move(body));
  }

  Expr Replaced(const Around& around, const Expr& e) {
    if (e->kind == ExprKind::kLoad) {
      const bool plain = std::none_of(e->args.begin(), e->args.end(), LoadsAnything);
      return local_.contains(e->buffer) || !plain ? e : Ahead(around, e);
    }
    if (e->kind == ExprKind::kSelect || e->args.empty()) return e;  // what is not chosen need not be possible to load
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back(Replaced(around, arg));
    return Rebuild(e, std::move(args));
  }

  static bool IsSame(const Around& a, const Around& b) {
    const bool conditions = a.condition && b.condition ? Equal(a.condition, b.condition) : a.condition == b.condition;
    return conditions && a.loops == b.loops;
  }

  Expr Ahead(const Around& around, const Expr& load) {
    for (const Known& known : known_)
      if (IsSame(known.around, around) && Equal(known.load, load)) return known.registers.own;
    const auto uses = [](const Expr& e, const StmtNode* loop) { return e && UsesVar(e, loop->var.get()); };
    ValueAhead ahead{.name = "ahead", .value = load, .condition = around.condition};
    for (const StmtNode* loop : around.loops) {
      const bool of_load =
          std::any_of(load->args.begin(), load->args.end(), [&](const Expr& e) { return uses(e, loop); });
      if (of_load || uses(around.condition, loop)) ahead.filled.push_back(loop);
      if (of_load) ahead.elements.push_back(loop);
    }
    int next = next_buffer_;
    if (const InFront front = FrontOf(load, around.condition); front.param != nullptr) {
      ValueAhead in_front = ahead;
      in_front.value = front.load;
      in_front.condition = front.condition;
      in_front.packed =
          IsNarrowFloat(load->dtype) && !ahead.filled.empty() && ahead.filled.back()->for_kind == ForKind::kVectorize;
      if (front.threads != nullptr) in_front.filled.insert(in_front.filled.begin(), front.threads);
      LoadedAhead made = LoadAhead(in_front, &next);
      if (const int64_t registers = RegistersOf(made.decl); registers <= left_in_front_) {
        left_in_front_ -= registers;
        return Keep({around, load, std::move(made), front.param});
      }
    }
    if (!several_) return load;
    next = next_buffer_;
    return Keep({around, load, LoadAhead(ahead, &next)});
  }

  Expr Keep(Known known) {
    ++next_buffer_;
    known_.push_back(std::move(known));
    return known_.back().registers.own;
  }

  // A load of a parameter in front of the products, and the condition under which it happens.
  struct InFront {
    const BufferDecl* param = nullptr;  // null: it stays where it is
    Expr load{}, condition{};
    const StmtNode* threads = nullptr;  // the loop over threads that it needs around it; null: none
  };

  InFront FrontOf(const Expr& load, const Expr& condition) const {
    const auto param = params_.find(load->buffer);
    if (param == params_.end() || load->args.size() != 1 || product_ >= leaf_) return {};
    const Leaf &there = leaves_[param->second->constant ? 0 : product_], &here = leaves_[leaf_];
    const StmtNode* threads = nullptr;
    Expr index = load->args[0], when = condition;
    if (!IsKnownAt(there, here, &index, &threads) || LoadsAnything(index)) return {};
    if (when) {
      const StmtNode* others = nullptr;
      if (!IsKnownAt(there, here, &when, &others) || LoadsAnything(when)) return {};
      if (threads != nullptr && others != nullptr && threads != others) return {};
      if (threads == nullptr) threads = others;
    }
    InFront front{param->second, Load(load->buffer, load->dtype, {index}), when, threads};
    const auto outer = std::find_if(there.around.begin(), there.around.end(), [](const StmtNode* s) {
      return s->kind == StmtKind::kFor && s->for_kind == ForKind::kThreadX;
    });
    if (threads == nullptr || outer == there.around.end()) return front;
    if ((*outer)->extent != threads->extent) return {};
    const VarMap there_threads = {{threads->var.get(), (*outer)->var}};
    front.load = Substitute(front.load, there_threads);
    if (when) front.condition = Substitute(when, there_threads);
    front.threads = nullptr;
    return front;
  }

  int& next_buffer_;
  const std::vector<Leaf> leaves_;
  size_t product_ = 0;         // the first leaf with products
  int64_t left_in_front_ = 0;  // registers
  std::map<int, const BufferDecl*> params_;
  std::set<int> local_;
  std::vector<BufferDecl> decls_;
  std::vector<Stmt> constants_in_front_, inputs_in_front_;
  // Of a leaf.
  size_t leaf_ = 0;
  bool several_ = false;  // results, each of which would wait for loads of its own
  std::vector<Known> known_;
};

}  // namespace

KernelFunc WithRemoteLoadsAhead(KernelFunc kernel, int* next_buffer) {
  if (kernel.body != nullptr && kernel.cluster > 1) kernel.body = RemoteLoads(kernel, next_buffer).Run(kernel.body);
  return kernel;
}

}  // namespace diapason
