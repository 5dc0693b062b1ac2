#include "compiler/lower/remote_loads.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/leaves.h"

namespace diapason {
namespace {

// Of a thread. The parts of its results are as many as its block's products left in its accumulators.
constexpr int64_t kMostOfParts = 128;

class RemoteLoads {
 public:
  RemoteLoads(const KernelFunc& kernel, int* next_buffer) : next_buffer_(*next_buffer) {
    Contains(kernel.body, [&](const StmtNode& s) {
      if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kLocal) local_.insert(s.decl.id);
      return false;
    });
  }

  Stmt Run(const Stmt& body) {
    const Stmt mapped = MapLeaves(body, [this](size_t, const Stmt& leaf) { return OfLeaf(leaf); });
    return decls_.empty() ? body : InsideBlocks(mapped, [this](Stmt inner) {
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

  // A load, and what is read in its place: registers, which `fill` loads.
  struct Known {
    std::vector<const StmtNode*> loops;
    Expr load, own;
    Stmt fill;
  };

  Stmt OfLeaf(const Stmt& leaf) {
    if (!IsPlain(*leaf) || !HasSeveralRemoteResults(*leaf, false)) return leaf;
    known_.clear();
    const int first_buffer = next_buffer_;
    std::vector<BufferDecl> decls;
    const Stmt mapped = InLoops(leaf, {}, &decls);
    int64_t registers = 0;
    for (const BufferDecl& decl : decls) registers += decl.elements * std::max(1, BytesOf(decl.dtype) / 4);
    if (registers > kMostOfParts) {
      next_buffer_ = first_buffer;
      return leaf;
    }
    decls_.insert(decls_.end(), decls.begin(), decls.end());
    std::vector<Stmt> all;
    for (const Known& known : known_) all.push_back(known.fill);
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

  // Whether a loop, not over the elements of a vector, stores what it computes from other blocks' memory.
  static bool HasSeveralRemoteResults(const StmtNode& s, bool several) {
    if (s.kind == StmtKind::kStore) {
      bool remote = false;
      Visit(s.value, [&](const ExprNode& e) { remote |= e.kind == ExprKind::kLoad && RankOf(e) != nullptr; });
      return several && remote;
    }
    several |= s.kind == StmtKind::kFor && s.for_kind == ForKind::kUnroll && s.extent > 1;
    return std::any_of(s.body.begin(), s.body.end(),
                       [&](const Stmt& child) { return HasSeveralRemoteResults(*child, several); });
  }

  Stmt InLoops(const Stmt& stmt, const Around& around, std::vector<BufferDecl>* decls) {
    if (stmt->kind == StmtKind::kStore)
      return MakeStore(stmt->buffer, stmt->index, Replaced(around, stmt->value, decls));
    Around inner = around;
    if (stmt->kind == StmtKind::kFor) inner.loops.push_back(stmt.get());
    if (stmt->kind == StmtKind::kIf)
      inner.condition = inner.condition ? And(inner.condition, stmt->condition) : stmt->condition;
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(InLoops(child, inner, decls));
    return WithBody(*stmt, std::move(body));
  }

  Expr Replaced(const Around& around, const Expr& e, std::vector<BufferDecl>* decls) {
    if (e->kind == ExprKind::kLoad) {
      const bool plain = std::none_of(e->args.begin(), e->args.end(), LoadsAnything);
      return local_.contains(e->buffer) || !plain ? e : Ahead(around, e, decls);
    }
    if (e->kind == ExprKind::kSelect || e->args.empty()) return e;  // what is not chosen need not be possible to load
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back(Replaced(around, arg, decls));
    return Rebuild(e, std::move(args));
  }

  Expr Ahead(const Around& around, const Expr& load, std::vector<BufferDecl>* decls) {
    for (const Known& known : known_)
      if (known.loops == around.loops && Equal(known.load, load)) return known.own;
    const auto uses = [](const Expr& e, const StmtNode* loop) { return e && UsesVar(e, loop->var.get()); };
    BufferDecl own;
    own.elements = 1;
    Expr place = IntImm(0);
    VarMap renamed;
    std::vector<const StmtNode*> filled;
    for (const StmtNode* loop : around.loops) {
      const bool of_load =
          std::any_of(load->args.begin(), load->args.end(), [&](const Expr& e) { return uses(e, loop); });
      if (!of_load && !uses(around.condition, loop)) continue;
      filled.push_back(loop);
      renamed[loop->var.get()] = MakeVar(loop->var->name);
      if (!of_load) continue;
      own.elements *= loop->extent;
      place = Add(Mul(place, IntImm(loop->extent)), loop->var);
    }
    own.id = next_buffer_++;
    own.name = "ahead" + std::to_string(own.id);
    own.dtype = load->dtype;
    own.scope = Scope::kLocal;
    Stmt fill = MakeStore(own.id, Substitute(place, renamed), Substitute(load, renamed));
    if (around.condition) fill = MakeIf(Substitute(around.condition, renamed), fill);
    for (size_t l = filled.size(); l-- > 0;)
      fill = MakeFor(filled[l]->for_kind, renamed[filled[l]->var.get()], filled[l]->extent, fill);
    decls->push_back(own);
    known_.push_back({around.loops, load, Load(own.id, load->dtype, {place}), fill});
    return known_.back().own;
  }

  int& next_buffer_;
  std::set<int> local_;
  std::vector<BufferDecl> decls_;
  std::vector<Known> known_;  // of a leaf
};

}  // namespace

KernelFunc WithRemoteLoadsAhead(KernelFunc kernel, int* next_buffer) {
  if (kernel.body != nullptr && kernel.cluster > 1) kernel.body = RemoteLoads(kernel, next_buffer).Run(kernel.body);
  return kernel;
}

}  // namespace diapason
