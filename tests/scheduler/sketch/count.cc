#include "tests/scheduler/sketch/count.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/simplify.h"
#include "scheduler/random.h"

namespace diapason::testing {
namespace {

bool IsUpdate(const StmtNode& store) {
  bool update = false;
  for (const Expr& arg : store.value->args)
    update |= arg->kind == ExprKind::kLoad && arg->buffer == store.buffer && Equal(arg->args[0], store.index);
  return update;
}

class Counter {
 public:
  explicit Counter(Counted* counted) : counted_(counted) {}

  void Walk(const Stmt& stmt, double outer, double threads) {
    switch (stmt->kind) {
      case StmtKind::kFor:
        analyzer_.Bind(stmt->var, stmt->extent);
        // Nested thread loops are the same threads.
        if (stmt->for_kind == ForKind::kThreadX) {
          threads = static_cast<double>(stmt->extent);
          counted_->threads = std::max(counted_->threads, stmt->extent);
        } else {
          outer *= static_cast<double>(stmt->extent);
        }
        if (stmt->var->name.rfind("step_", 0) == 0) steps_[stmt->var->name] = static_cast<double>(stmt->extent);
        if (stmt->for_kind == ForKind::kBlockX || stmt->for_kind == ForKind::kParallel ||
            stmt->for_kind == ForKind::kCluster)
          counted_->blocks *= stmt->extent;
        if (stmt->for_kind == ForKind::kCluster) counted_->cluster = stmt->extent;
        break;
      case StmtKind::kLet:
        if (const std::optional<Interval> range = analyzer_.Bounds(stmt->value); range && range->min == 0)
          analyzer_.Bind(stmt->var, range->max + 1);
        break;
      case StmtKind::kIf: outer = std::round(outer * ShareOfSteps(*stmt->condition)); break;
      case StmtKind::kStore:
        // Steps past the end store zeros instead of a branch around the copy.
        if (stmt->value->kind == ExprKind::kSelect) outer = std::round(outer * ShareOfSteps(*stmt->value->args[0]));
        AddStore(*stmt, outer * threads);
        break;
      case StmtKind::kMma:
        // One instruction makes 16 x 8 x depth products in 32 lanes.
        counted_->products[stmt->buffer] +=
            outer * threads * 4 * static_cast<double>(TensorIntrinsicOf(stmt->tensor).depth());
        for (int i = 0; i < 4; ++i) Reach(stmt->buffer, stmt->operands[i]);
        break;
      case StmtKind::kGroupMma:
        // 64 x extent x depth products in 128 lanes.
        counted_->products[stmt->buffer] +=
            outer * threads / 2 * static_cast<double>(stmt->extent * TensorIntrinsicOf(stmt->tensor).depth());
        if (stmt->sums.empty()) Reach(stmt->buffer, Add(stmt->index, IntImm(stmt->extent / 2 - 1)));
        for (const Expr& sum : stmt->sums) Reach(stmt->buffer, sum);
        break;
      case StmtKind::kFactorParts: Reach(stmt->buffer, Add(stmt->index, IntImm(stmt->extent - 1))); break;
      case StmtKind::kLoadMatrix:
      case StmtKind::kShuffle:
      case StmtKind::kPack: Reach(stmt->buffer, stmt->index); break;
      case StmtKind::kQuadStore:
        counted_->stores[stmt->buffer].push_back({false, outer * threads * static_cast<double>(stmt->operands.size())});
        break;
      case StmtKind::kBulkCopy:
        counted_->bulk_copies[stmt->buffer] += outer;
        Reach(stmt->buffer, Add(stmt->index, IntImm(stmt->extent - 1)));
        break;
      case StmtKind::kTensorCopy:
        counted_->tensor_copies[stmt->buffer] += outer;
        Reach(stmt->buffer, Add(stmt->index, IntImm(stmt->box->elements() - 1)));
        break;
      case StmtKind::kAlloc:
        counted_->buffers[stmt->decl.id] = stmt->decl;
        if (stmt->decl.scope == Scope::kShared) {
          int64_t& bytes = shared_bytes_[stmt->decl.apart ? 2 : stmt->decl.overlay];
          bytes += (stmt->decl.elements * BytesOf(stmt->decl.dtype) + 15) / 16 * 16;
          counted_->shared_bytes = std::max(shared_bytes_[0], shared_bytes_[1]) + shared_bytes_[2];
        }
        break;
      default: break;
    }
    for (const Stmt& child : stmt->body) Walk(child, outer, threads);
  }

 private:
  void AddStore(const StmtNode& store, double times) {
    counted_->stores[store.buffer].push_back({IsUpdate(store), times});
    if (const int parts = OnlyBufferOf(store.value);
        parts >= 0 && parts != store.buffer && counted_->buffers.count(parts))
      counted_->stands_for[parts] = store.buffer;
    Reach(store.buffer, store.index);
  }

  // The buffer whose elements a value is, or combines: what the warps of a block have left there; -1: it is more.
  static int OnlyBufferOf(const Expr& value) {
    if (value->kind == ExprKind::kLoad) return value->buffer;
    if (value->kind != ExprKind::kAdd && value->kind != ExprKind::kMax && value->kind != ExprKind::kMin) return -1;
    const int buffer = OnlyBufferOf(value->args[0]);
    return buffer == OnlyBufferOf(value->args[1]) ? buffer : -1;
  }

  void Reach(int buffer, const Expr& index) {
    if (!counted_->buffers.count(buffer)) return;
    const std::optional<Interval> range = analyzer_.Bounds(index);
    int64_t& reached = counted_->reached[buffer];
    if (range) reached = std::max(reached, range->max + 1);
  }

  // The share of a pipeline's steps (a loop "step_...") in which the condition holds: "step < n", "n <= step" or both;
  // 1 for other conditions.
  double ShareOfSteps(const ExprNode& condition) const {
    if (condition.kind == ExprKind::kAnd)
      return ShareOfSteps(*condition.args[0]) + ShareOfSteps(*condition.args[1]) - 1;
    for (const auto& [name, extent] : steps_) {
      if (condition.kind == ExprKind::kLt && condition.args[0]->name == name)
        return static_cast<double>(condition.args[1]->value) / extent;
      if (condition.kind == ExprKind::kLe && condition.args[1]->name == name)
        return (extent - static_cast<double>(condition.args[0]->value)) / extent;
    }
    return 1;
  }

  Counted* counted_;
  Analyzer analyzer_;
  int64_t shared_bytes_[3] = {0, 0, 0};  // side by side, of those in their place, and apart
  std::map<std::string, double> steps_;  // extents of the loops of pipelines
};

// One iteration of everything, with values of integers only.
class Walker {
 public:
  Walker(const KernelFunc& kernel, uint64_t seed) : kernel_(kernel), random_(seed) {
    for (const BufferDecl& param : kernel.params) elements_[param.id] = param.elements;
  }

  std::string Run() {
    thread_ = Corner(kernel_.threads);
    Walk(kernel_.body);
    return problem_;
  }

 private:
  int64_t Corner(int64_t extent) {
    const uint32_t kind = random_.Below(4);
    if (kind == 0) return 0;
    return kind < 3 ? extent - 1 : static_cast<int64_t>(random_.Below(static_cast<uint32_t>(extent)));
  }

  void Walk(const Stmt& stmt) {
    if (!problem_.empty()) return;
    switch (stmt->kind) {
      case StmtKind::kFor:
        values_[stmt->var.get()] = stmt->for_kind == ForKind::kThreadX ? thread_ : Corner(stmt->extent);
        break;
      case StmtKind::kLet: values_[stmt->var.get()] = Value(*stmt->value).value_or(0); break;
      case StmtKind::kAlloc: elements_[stmt->decl.id] = stmt->decl.elements; break;
      case StmtKind::kIf:
        if (Value(*stmt->condition).value_or(1) == 0) return;
        break;
      case StmtKind::kStore:
        Check(stmt->buffer, *stmt->index);
        Value(*stmt->value);
        break;
      case StmtKind::kLoadMatrix:
        Check(stmt->buffer, *stmt->index);
        Check(stmt->buffer, *Add(stmt->index, IntImm(stmt->extent - 1)));
        Check(stmt->value->buffer, *stmt->value->args[0]);
        Check(stmt->value->buffer, *Add(stmt->value->args[0], IntImm(TensorIntrinsicOf(stmt->tensor).row() - 1)));
        break;
      case StmtKind::kQuadStore:
        for (const Expr& operand : stmt->operands) Value(*operand);
        if (stmt->condition && Value(*stmt->condition) == 0) break;
        if (stmt->transposed) {
          const int64_t first = thread_ % 2 * 8 + thread_ / 2 % 2 * 4;
          Check(stmt->buffer, *Add(stmt->index, IntImm(first)));
          Check(stmt->buffer, *Add(stmt->index, IntImm(first + 3)));
          break;
        }
        Check(stmt->buffer, *stmt->index);
        Check(stmt->buffer, *Add(stmt->index, IntImm(4 * static_cast<int64_t>(stmt->operands.size()) - 1)));
        break;
      case StmtKind::kShuffle: Value(*stmt->value); [[fallthrough]];
      case StmtKind::kPack:
        Check(stmt->buffer, *stmt->index);
        for (const Expr& operand : stmt->operands) Value(*operand);
        break;
      case StmtKind::kTensorCopy:
        Check(stmt->buffer, *stmt->index);
        Check(stmt->buffer, *Add(stmt->index, IntImm(stmt->box->elements() - 1)));
        for (const Expr& operand : stmt->operands) Value(*operand);
        break;
      case StmtKind::kBulkCopy:
        for (const Expr& operand : stmt->operands) Value(*operand);
        [[fallthrough]];
      case StmtKind::kFactorParts:
        Check(stmt->buffer, *stmt->index);
        Check(stmt->buffer, *Add(stmt->index, IntImm(stmt->extent - 1)));
        Check(stmt->value->buffer, *stmt->value->args[0]);
        Check(stmt->value->buffer, *Add(stmt->value->args[0], IntImm(stmt->extent - 1)));
        break;
      case StmtKind::kGroupMma:
        if (stmt->sums.empty()) Check(stmt->buffer, *stmt->index);
        if (stmt->sums.empty()) Check(stmt->buffer, *Add(stmt->index, IntImm(stmt->extent / 2 - 1)));
        for (const Expr& sum : stmt->sums) Check(stmt->buffer, *sum);
        for (const Expr& operand : stmt->operands) Value(*operand);
        CheckCoreMatrices(*stmt);
        break;
      case StmtKind::kMbarrier:
        Value(*stmt->operands[0]);
        if (stmt->mbarrier == MbarrierOp::kInit)
          Check(stmt->operands[0]->buffer, *Add(stmt->operands[0]->args[0], IntImm(stmt->extent - 1)));
        break;
      case StmtKind::kMma:
        for (size_t i = 0; i < stmt->operands.size(); ++i) {
          if (i < 4)
            Check(stmt->buffer, *stmt->operands[i]);
          else
            Value(*stmt->operands[i]);
        }
        break;
      default: break;
    }
    for (const Stmt& child : stmt->body) Walk(child);
  }

  // The last element of the last row and column.
  void CheckCoreMatrices(const StmtNode& s) {
    const TensorIntrinsic& intrinsic = TensorIntrinsicOf(s.tensor);
    const bool rows = s.rows.stride > 0;
    const auto check = [&](const Expr& first, const CoreMatrices& matrices, int64_t lines) {
      Check(first->buffer, *Add(first->args[0], IntImm(matrices.At(lines - 1, intrinsic.depth() - 1))));
    };
    if (rows) check(s.operands[0], s.rows, 64);
    for (size_t i = rows ? 1 : intrinsic.parts ? 8 : 4; i < s.operands.size(); ++i)
      check(s.operands[i], s.columns, s.extent);
  }

  void Check(int buffer, const ExprNode& index) {
    const std::optional<int64_t> at = Value(index);
    if (!problem_.empty() || !at || (*at >= 0 && *at < elements_.at(buffer))) return;
    problem_ = absl::StrCat("element ", *at, " of buffer ", buffer, ", which has ", elements_.at(buffer), ", at");
    for (const auto& [var, value] : values_) absl::StrAppend(&problem_, " ", var->name, "=", value);
  }

  void CheckRank(const ExprNode& rank) {
    const std::optional<int64_t> block = Value(rank);
    if (problem_.empty() && !(block && *block >= 0 && *block < kernel_.cluster))
      problem_ = absl::StrCat("block ", block.value_or(-1), " of a cluster of ", kernel_.cluster);
  }

  // The value of an integer expression; nothing for floats and for what depends on memory. Looks at every load on the
  // way.
  std::optional<int64_t> Value(const ExprNode& e) {
    switch (e.kind) {
      case ExprKind::kIntImm: return e.value;
      case ExprKind::kVar: return values_.at(&e);
      case ExprKind::kLoad:
        Check(e.buffer, *e.args[0]);
        if (e.args.size() > 1) CheckRank(*e.args[1]);
        return std::nullopt;
      case ExprKind::kSelect: return Choice(e);
      case ExprKind::kAnd:
      case ExprKind::kOr: return Junction(e);
      default: break;
    }
    std::optional<int64_t> a, b;
    if (!e.args.empty()) a = Value(*e.args[0]);
    if (e.args.size() > 1) b = Value(*e.args[1]);
    if (!a || (e.args.size() > 1 && !b)) return std::nullopt;
    return Apply(e, *a, b.value_or(0));
  }

  std::optional<int64_t> Choice(const ExprNode& e) {
    const std::optional<int64_t> condition = Value(*e.args[0]);
    if (condition) return Value(*e.args[*condition ? 1 : 2]);
    Value(*e.args[1]);
    Value(*e.args[2]);
    return std::nullopt;
  }

  std::optional<int64_t> Junction(const ExprNode& e) {
    const int64_t deciding = e.kind == ExprKind::kOr;
    const std::optional<int64_t> a = Value(*e.args[0]);
    if (a && *a == deciding) return a;
    const std::optional<int64_t> b = Value(*e.args[1]);
    return b && *b == deciding ? b : (a ? b : a);
  }

  static std::optional<int64_t> Apply(const ExprNode& e, int64_t a, int64_t b) {
    switch (e.kind) {
      case ExprKind::kAdd: return a + b;
      case ExprKind::kSub: return a - b;
      case ExprKind::kMul: return a * b;
      case ExprKind::kFloorDiv: return a / b - (a % b < 0);
      case ExprKind::kFloorMod: return (a % b + b) % b;
      case ExprKind::kMin: return std::min(a, b);
      case ExprKind::kMax: return std::max(a, b);
      case ExprKind::kLt: return a < b;
      case ExprKind::kLe: return a <= b;
      case ExprKind::kEq: return a == b;
      case ExprKind::kNe: return a != b;
      case ExprKind::kNot: return !a;
      case ExprKind::kCast: return IsFloat(e.dtype) ? std::nullopt : std::optional<int64_t>(a);
      default: return std::nullopt;
    }
  }

  const KernelFunc& kernel_;
  Random random_;
  int64_t thread_ = 0;
  std::unordered_map<int, int64_t> elements_;
  std::unordered_map<const ExprNode*, int64_t> values_;
  std::string problem_;
};

}  // namespace

std::vector<Counted::Store> Counted::StoresFor(int buffer) const {
  std::vector<Store> found;
  for (const auto& [to, list] : stores) {
    // At most share -> tree -> buffer; a register that is filled from its buffer before makes a cycle.
    int owner = to;
    for (int hop = 0; hop < 2 && owner != buffer; ++hop)
      if (auto it = stands_for.find(owner); it != stands_for.end()) owner = it->second;
    if (owner == buffer) found.insert(found.end(), list.begin(), list.end());
  }
  return found;
}

Counted Count(const KernelFunc& kernel) {
  Counted counted;
  Counter(&counted).Walk(kernel.body, 1, 1);
  return counted;
}

std::string CheckAccesses(const KernelFunc& kernel, uint64_t seed, int samples) {
  for (int i = 0; i < samples; ++i) {
    std::string problem = Walker(kernel, Mix(seed) + static_cast<uint64_t>(i)).Run();
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace diapason::testing
