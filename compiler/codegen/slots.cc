#include "compiler/codegen/slots.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "compiler/codegen/passes.h"

namespace diapason {
namespace {

// More variables than this are no registers any more, and only slow the compiler down.
constexpr size_t kMaxSlots = 512;

class Finder {
 public:
  Finder(int buffer, bool vectors, Analyzer& analyzer) : buffer_(buffer), use_vectors_(vectors), analyzer_(analyzer) {}

  bool Walk(const Stmt& stmt) {
    const bool vector_loop = stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kVectorize;
    if (vector_loop) {
      lane_ = stmt->var;
      lanes_ = stmt->extent;
    }
    bool constant = true;
    if (stmt->kind == StmtKind::kStore && stmt->buffer == buffer_) constant = Access(stmt->index);
    for (const Expr* e : {&stmt->index, &stmt->value, &stmt->condition})
      if (*e != nullptr) constant = constant && Loads(*e);
    for (const Stmt& child : stmt->body) constant = constant && Walk(child);
    if (vector_loop) lane_ = nullptr;
    return constant;
  }

  std::optional<Slots> Result() const {
    Slots slots;
    for (const auto& [start, lanes] : vectors_) {
      if (!slots.empty() && std::prev(slots.end())->first + std::prev(slots.end())->second > start) return std::nullopt;
      slots[start] = lanes;
    }
    for (int64_t at : scalars_) {
      auto after = slots.upper_bound(at);
      const bool inside = after != slots.begin() && std::prev(after)->first + std::prev(after)->second > at;
      if (!inside) slots[at] = 1;
    }
    if (slots.size() > kMaxSlots) return std::nullopt;
    return slots;
  }

 private:
  bool Loads(const Expr& e) {
    if (e->kind == ExprKind::kLoad && e->buffer == buffer_ && !Access(e->args[0])) return false;
    return std::all_of(e->args.begin(), e->args.end(), [this](const Expr& arg) { return Loads(arg); });
  }

  bool Access(const Expr& index) {
    if (lane_ == nullptr || !UsesVar(index, lane_.get())) return Scalar(index);
    const Stride stride = StrideOf(index, lane_, analyzer_);
    if (use_vectors_ && stride.affine && stride.stride == 1 && stride.base->kind == ExprKind::kIntImm) {
      vectors_.emplace(stride.base->value, lanes_);
      return true;
    }
    for (int64_t i = 0; i < lanes_; ++i)
      if (!Scalar(analyzer_.Simplify(Substitute(index, {{lane_.get(), IntImm(i)}})))) return false;
    return true;
  }

  bool Scalar(const Expr& index) {
    if (index->kind != ExprKind::kIntImm) return false;
    scalars_.insert(index->value);
    return true;
  }

  const int buffer_;
  const bool use_vectors_;
  Analyzer& analyzer_;
  Expr lane_;
  int64_t lanes_ = 1;
  std::set<std::pair<int64_t, int64_t>> vectors_;
  std::set<int64_t> scalars_;
};

}  // namespace

std::optional<Slots> FindSlots(const BufferDecl& decl, const Stmt& body, bool vectors, Analyzer& analyzer) {
  Finder finder(decl.id, vectors, analyzer);
  if (!finder.Walk(body)) return std::nullopt;
  return finder.Result();
}

Slots::const_iterator SlotOf(const Slots& slots, int64_t at) {
  auto after = slots.upper_bound(at);
  DIAPASON_CHECK(after != slots.begin());
  return std::prev(after);
}

}  // namespace diapason
