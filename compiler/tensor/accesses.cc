#include "compiler/tensor/accesses.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/compare.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

// Values of loops that are tried for one index: some milliseconds.
constexpr int64_t kMaxPoints = int64_t{1} << 18;
constexpr int64_t kMostConstant = int64_t{1} << 60;

using Point = std::unordered_map<const ExprNode*, int64_t>;

int64_t FloorDivOf(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// The value of an integer expression at a point; nothing for one that is not of variables, literals and integer
// operations alone, or overflows.
std::optional<int64_t> ValueAt(const Expr& e, const Point& point) {
  if (e->kind == ExprKind::kIntImm) return e->value;
  if (e->kind == ExprKind::kVar) {
    const auto it = point.find(e.get());
    return it == point.end() ? std::nullopt : std::optional<int64_t>(it->second);
  }
  if (e->args.empty() || IsFloat(e->dtype)) return std::nullopt;
  const std::optional<int64_t> a = ValueAt(e->args[0], point);
  if (!a) return std::nullopt;
  if (e->kind == ExprKind::kSelect) return ValueAt(e->args[*a != 0 ? 1 : 2], point);
  if (e->kind == ExprKind::kNot) return *a == 0;
  if (e->kind == ExprKind::kCast)
    return IsFloat(e->args[0]->dtype) ? std::nullopt : std::optional(IntImm(*a, e->dtype)->value);
  if (e->args.size() != 2) return std::nullopt;
  const std::optional<int64_t> b = ValueAt(e->args[1], point);
  if (!b) return std::nullopt;
  int64_t result = 0;
  switch (e->kind) {
    case ExprKind::kAdd: return __builtin_add_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
    case ExprKind::kSub: return __builtin_sub_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
    case ExprKind::kMul: return __builtin_mul_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
    case ExprKind::kFloorDiv: return FloorDivOf(*a, *b);
    case ExprKind::kFloorMod: return *a - FloorDivOf(*a, *b) * *b;
    case ExprKind::kMin: return std::min(*a, *b);
    case ExprKind::kMax: return std::max(*a, *b);
    case ExprKind::kLt: return *a < *b;
    case ExprKind::kLe: return *a <= *b;
    case ExprKind::kEq: return *a == *b;
    case ExprKind::kNe: return *a != *b;
    case ExprKind::kAnd: return *a != 0 && *b != 0;
    case ExprKind::kOr: return *a != 0 || *b != 0;
    default: return std::nullopt;
  }
}

// min(max(e, low), high) of literals low <= high, in any order of operands: between them, whatever e is.
std::optional<Interval> ClampOf(const Expr& e) {
  const auto part = [](const Expr& from, ExprKind kind) -> std::optional<std::pair<Expr, int64_t>> {
    if (from->kind != kind || IsFloat(from->dtype)) return std::nullopt;
    for (int k : {0, 1})
      if (from->args[k]->kind == ExprKind::kIntImm) return std::pair(from->args[1 - k], from->args[k]->value);
    return std::nullopt;
  };
  const auto high = part(e, ExprKind::kMin);
  const auto low = high ? part(high->first, ExprKind::kMax) : std::nullopt;
  if (!low || low->second > high->second) return std::nullopt;
  return Interval{low->second, high->second};
}

bool HasCastOfFloat(const Expr& e) {
  bool found = false;
  Visit(e, [&](const ExprNode& node) {
    found |= node.kind == ExprKind::kCast && !IsFloat(node.dtype) && IsFloat(node.args[0]->dtype);
  });
  return found;
}

// One stage. Loads inside of indices and conditions are variables of their own, over the values that they may have.
class StageAccesses {
 public:
  StageAccesses(const ComputeDag& dag, const std::vector<std::optional<Interval>>& values, const Stage& stage)
      : dag_(dag), values_(values), stage_(stage) {
    for (const auto* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) Bind(axis.var, {0, axis.extent - 1});
  }

  absl::Status Run() { return Walk(stage_.body); }

  // Of the stage's elements, where they are integers that can be told.
  std::optional<Interval> Values() {
    if (IsFloat(stage_.dtype)) return std::nullopt;
    const Expr body = WithoutLoads(stage_.body);
    const std::optional<Interval> terms = CannotWrap(body) ? analyzer_.Bounds(body) : std::nullopt;
    if (!terms || !stage_.reduces() || stage_.combiner == Combiner::kMax || stage_.combiner == Combiner::kMin)
      return terms;
    Interval sum{0, 0};
    if (stage_.combiner != Combiner::kSum || __builtin_mul_overflow(terms->min, stage_.terms(), &sum.min) ||
        __builtin_mul_overflow(terms->max, stage_.terms(), &sum.max) || !Fits(sum, stage_.dtype))
      return std::nullopt;
    return sum;
  }

 private:
  void Bind(const Expr& var, Interval range) {
    analyzer_.Bind(var, range);
    ranges_[var.get()] = range;
  }

  absl::Status Walk(const Expr& e) {
    // What is behind no condition need not be looked at again under another one.
    if (conditions_.empty() ? !walked_.insert(e.get()).second : walked_.count(e.get()) > 0) return absl::OkStatus();
    if (e->kind == ExprKind::kSelect) return WalkSelect(e);
    for (const Expr& arg : e->args) RETURN_IF_ERROR(Walk(arg));
    return e->kind == ExprKind::kLoad ? CheckLoad(e) : absl::OkStatus();
  }

  absl::Status WalkSelect(const Expr& e) {
    RETURN_IF_ERROR(Walk(e->args[0]));
    const size_t outer = conditions_.size();
    Assume(WithoutLoads(e->args[0]), true);
    RETURN_IF_ERROR(Walk(e->args[1]));
    conditions_.resize(outer);
    Assume(WithoutLoads(e->args[0]), false);
    const absl::Status status = Walk(e->args[2]);
    conditions_.resize(outer);
    return status;
  }

  absl::Status CheckLoad(const Expr& load) {
    const Stage& tensor = dag_.stage(load->buffer);
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (Proves(WithoutLoads(load->args[d]), tensor.axes[d].extent)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "stage '", stage_.name, "' reads '", tensor.name, "' at index ", d, " = ",
          ToString(load->args[d]).substr(0, 200), ", which is not proven to be from 0 to ", tensor.axes[d].extent - 1));
    }
    return absl::OkStatus();
  }

  // Loads as variables; those of what may be any integer are left, and nothing is proven of them.
  Expr WithoutLoads(const Expr& e) {
    return Rewrite(e, [this](const Expr& node) {
      // A number made an index by a clamp.
      if (const std::optional<Interval> clamp = ClampOf(node); clamp && HasCastOfFloat(node)) {
        kept_.push_back(MakeVar("clamped"));
        Bind(kept_.back(), *clamp);
        return kept_.back();
      }
      if (node->kind != ExprKind::kLoad || !values_[node->buffer].has_value() || node->dtype == DType::kBool)
        return node;
      const auto [it, fresh] = loaded_.try_emplace(node.get(), nullptr);
      if (fresh) {
        kept_.push_back(node);  // an address is not used again
        it->second = MakeVar("loaded");
        Bind(it->second, *values_[node->buffer]);
      }
      return node->dtype == DType::kInt64 ? it->second : Cast(node->dtype, it->second);
    });
  }

  // Adds what holds where the condition is `value`.
  void Assume(const Expr& condition, bool value) {
    const ExprKind kind = condition->kind;
    if (kind == ExprKind::kNot) return Assume(condition->args[0], !value);
    if ((kind == ExprKind::kAnd && value) || (kind == ExprKind::kOr && !value)) {
      for (const Expr& arg : condition->args) Assume(arg, value);
      return;
    }
    conditions_.push_back({condition, value});
  }

  static bool Fits(const Interval& range, DType dtype) {
    return IntImm(range.min, dtype)->value == range.min && IntImm(range.max, dtype)->value == range.max;
  }

  // No part of it is of a narrow type and may leave it, where its value would be another one.
  bool CannotWrap(const Expr& e) {
    if (!std::all_of(e->args.begin(), e->args.end(), [this](const Expr& arg) { return CannotWrap(arg); })) return false;
    if (e->args.empty() || IsFloat(e->dtype) || e->dtype == DType::kInt64 || e->dtype == DType::kBool) return true;
    const std::optional<Interval> bounds = analyzer_.Bounds(e);
    return bounds && Fits(*bounds, e->dtype);
  }

  static bool Within(const std::optional<Interval>& bounds, int64_t extent) {
    return bounds && bounds->min >= 0 && bounds->max < extent;
  }

  // e is in [0, extent).
  bool Proves(const Expr& e, int64_t extent) {
    if (!CannotWrap(e)) return false;
    if (Within(analyzer_.Bounds(e), extent)) return true;
    Analyzer narrowed = analyzer_;
    if (!Narrow(narrowed)) return true;  // the conditions hold nowhere together
    if (Within(narrowed.Bounds(e), extent)) return true;
    if (e->kind == ExprKind::kSelect) return ProvesSelect(e, extent);
    if (int64_t most = 0; e->kind == ExprKind::kFloorDiv &&
                          !__builtin_mul_overflow(extent, IntValue(e->args[1]), &most) && Proves(e->args[0], most))
      return true;
    const bool above = NotPositive(Sub(IntImm(0), e)), below = NotPositive(Sub(e, IntImm(extent - 1)));
    return (above && below) || TriesAll(e, extent);
  }

  bool ProvesSelect(const Expr& e, int64_t extent) {
    const size_t outer = conditions_.size();
    Assume(e->args[0], true);
    bool proven = Proves(e->args[1], extent);
    conditions_.resize(outer);
    Assume(e->args[0], false);
    proven = proven && Proves(e->args[2], extent);
    conditions_.resize(outer);
    return proven;
  }

  // e <= 0, by itself or because it is no more than what a condition says is not positive.
  bool NotPositive(const Expr& e) {
    const auto most = [this](const Expr& x) {
      const auto bounds = analyzer_.Bounds(analyzer_.Simplify(x));
      return bounds && bounds->max <= 0;
    };
    if (most(e)) return true;
    const std::vector<Expr> known = KnownNotPositive();
    return std::any_of(known.begin(), known.end(), [&](const Expr& d) { return most(Sub(e, d)); });
  }

  // What the conditions say is not positive.
  std::vector<Expr> KnownNotPositive() const {
    std::vector<Expr> known;
    for (const auto& [condition, value] : conditions_) {
      if (condition->args.size() != 2 || condition->args[0]->dtype != DType::kInt64) continue;
      const Expr &a = condition->args[0], &b = condition->args[1];
      const Expr one = IntImm(1);
      if (condition->kind == ExprKind::kLt) known.push_back(value ? Add(Sub(a, b), one) : Sub(b, a));
      if (condition->kind == ExprKind::kLe) known.push_back(value ? Sub(a, b) : Add(Sub(b, a), one));
      if (condition->kind == ExprKind::kEq && value) {
        known.push_back(Sub(a, b));
        known.push_back(Sub(b, a));
      }
    }
    return known;
  }

  // Takes from the ranges of variables what a condition on one alone excludes. False when nothing is left of one.
  bool Narrow(Analyzer& analyzer) const {
    std::unordered_map<const ExprNode*, Interval> ranges;
    for (const Expr& d : KnownNotPositive()) {
      const Affine affine = ToAffine(d);
      if (affine.terms.size() != 1 || affine.constant > kMostConstant || affine.constant < -kMostConstant) continue;
      const auto& [var, coefficient] = affine.terms[0];
      const auto bound = ranges_.find(var.get());
      if (bound == ranges_.end() || (coefficient != 1 && coefficient != -1)) continue;
      Interval& range = ranges.try_emplace(var.get(), bound->second).first->second;
      if (coefficient == 1) range.max = std::min(range.max, -affine.constant);
      if (coefficient == -1) range.min = std::max(range.min, affine.constant);
      if (range.min > range.max) return false;
      analyzer.Bind(var, range);
    }
    return true;
  }

  // At all points of what e depends on at which the conditions hold that depend on nothing else.
  bool TriesAll(const Expr& e, int64_t extent) {
    std::vector<const ExprNode*> vars;
    const auto collect = [&vars](const ExprNode& node) {
      if (node.kind == ExprKind::kVar && std::find(vars.begin(), vars.end(), &node) == vars.end())
        vars.push_back(&node);
    };
    Visit(e, collect);
    int64_t points = 1;
    for (const ExprNode* var : vars) {
      const Interval range = ranges_.at(var);
      int64_t span = 0;
      if (__builtin_sub_overflow(range.max, range.min, &span) || span >= kMaxPoints / points) return false;
      points *= span + 1;
    }
    Point point;
    for (const ExprNode* var : vars) point[var] = ranges_.at(var).min;
    for (int64_t n = 0; n < points; ++n) {
      if (MayBe(point)) {
        const std::optional<int64_t> value = ValueAt(e, point);
        if (!value || *value < 0 || *value >= extent) return false;
      }
      for (const ExprNode* var : vars) {
        if (++point[var] <= ranges_.at(var).max) break;
        point[var] = ranges_.at(var).min;
      }
    }
    return true;
  }

  bool MayBe(const Point& point) const {
    return std::all_of(conditions_.begin(), conditions_.end(), [&](const auto& one) {
      const std::optional<int64_t> value = ValueAt(one.first, point);
      return !value || (*value != 0) == one.second;
    });
  }

  const ComputeDag& dag_;
  const std::vector<std::optional<Interval>>& values_;
  const Stage& stage_;
  Analyzer analyzer_;
  std::unordered_map<const ExprNode*, Interval> ranges_;
  std::unordered_map<const ExprNode*, Expr> loaded_;
  std::vector<Expr> kept_;
  std::vector<std::pair<Expr, bool>> conditions_;  // that hold, or do not, where the walk is
  std::unordered_set<const ExprNode*> walked_;     // without conditions
};

}  // namespace

absl::Status CheckAccesses(const ComputeDag& dag) {
  std::vector<std::optional<Interval>> values;
  for (const Stage& stage : dag.stages()) {
    values.emplace_back();
    if (stage.placeholder) {
      if (IsFloat(stage.dtype)) continue;
      const IntegerRange drawn = DrawnIntegers(dag, static_cast<int>(values.size()) - 1);
      values.back() = Interval{drawn.low, drawn.high};
      continue;
    }
    StageAccesses accesses(dag, values, stage);
    RETURN_IF_ERROR(accesses.Run());
    values.back() = accesses.Values();
  }
  return absl::OkStatus();
}

}  // namespace diapason
