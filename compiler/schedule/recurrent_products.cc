#include "compiler/schedule/recurrent_products.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Rounds of the recurrence after which bounds that still grow are given up.
constexpr int kRounds = 4;
constexpr int kLongestChain = 8;  // of moves between an element and what computes it

struct ElementRange {
  double lower = -kInfinity, upper = kInfinity;
  bool operator==(const ElementRange&) const = default;
};

// An end that is no number is not known.
ElementRange Between(double lower, double upper) {
  return {std::isnan(lower) ? -kInfinity : lower, std::isnan(upper) ? kInfinity : upper};
}

ElementRange Hull(ElementRange a, ElementRange b) { return {std::min(a.lower, b.lower), std::max(a.upper, b.upper)}; }

// 0 times infinity stands for a number that is not known.
double Times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

ElementRange Product(ElementRange a, ElementRange b) {
  const double corners[] = {Times(a.lower, b.lower), Times(a.lower, b.upper), Times(a.upper, b.lower),
                            Times(a.upper, b.upper)};
  return {*std::min_element(std::begin(corners), std::end(corners)),
          *std::max_element(std::begin(corners), std::end(corners))};
}

class StateBounds {
 public:
  explicit StateBounds(const RecurrentSchedule& schedule) : dag_(schedule.dag), r_(schedule.recurrence) {
    for (size_t i = 0; i < r_.start.size(); ++i) of_[r_.start[i]] = Of(r_.start_expressions[i]);
    for (size_t c = 0; c < r_.carried.size(); ++c) of_[BufferOf(c)] = Of(r_.carried[c].initial);
    // Each round without an end makes at least one bound infinite, after which it does not change any more.
    for (int round = 0; Advance(round >= kRounds); ++round) {
    }
  }

  ElementRange OfStage(int stage) const { return of_.at(stage); }

 private:
  static int BufferOf(size_t carried) { return Recurrence::BufferOf(static_cast<int>(carried)); }

  // One step. Whether what the next step reads has other bounds than before; with `last`, these are then infinite.
  bool Advance(bool last) {
    for (size_t i = 0; i < r_.body.size(); ++i)
      of_[r_.body[i]] = dag_.stage(r_.body[i]).reduces() ? ElementRange{} : Of(r_.expressions[i]);
    bool changed = false;
    for (size_t c = 0; c < r_.carried.size(); ++c) {
      ElementRange& known = of_[BufferOf(c)];
      const ElementRange now = Hull(known, of_[r_.carried[c].source]);
      if (now == known) continue;
      known = last ? ElementRange{} : now;
      changed = true;
    }
    return changed;
  }

  ElementRange Of(const Expr& e) const {
    switch (e->kind) {
      case ExprKind::kIntImm: return {static_cast<double>(e->value), static_cast<double>(e->value)};
      case ExprKind::kFloatImm: return {e->fvalue, e->fvalue};
      case ExprKind::kLoad: return OfLoad(*e);
      case ExprKind::kCast: return IsFloat(e->dtype) ? Of(e->args[0]) : ElementRange{};
      case ExprKind::kCall:
        return e->name == "tanh" ? ElementRange{-1, 1} : e->name == "sigmoid" ? ElementRange{0, 1} : ElementRange{};
      case ExprKind::kMul: return Product(Of(e->args[0]), Of(e->args[1]));
      case ExprKind::kAdd:
      case ExprKind::kSub: {
        const std::vector<Expr> mean = MeanOf(e);
        if (!mean.empty()) return Hull(Of(mean[0]), Of(mean[1]));
        const ElementRange a = Of(e->args[0]), b = Of(e->args[1]);
        if (e->kind == ExprKind::kAdd) return Between(a.lower + b.lower, a.upper + b.upper);
        return Between(a.lower - b.upper, a.upper - b.lower);
      }
      case ExprKind::kMin: {
        const ElementRange a = Of(e->args[0]), b = Of(e->args[1]);
        return {std::min(a.lower, b.lower), std::min(a.upper, b.upper)};
      }
      case ExprKind::kMax: {
        const ElementRange a = Of(e->args[0]), b = Of(e->args[1]);
        return {std::max(a.lower, b.lower), std::max(a.upper, b.upper)};
      }
      case ExprKind::kSelect: return Hull(Of(e->args[1]), Of(e->args[2]));
      default: return {};
    }
  }

  ElementRange OfLoad(const ExprNode& load) const {
    if (const auto found = of_.find(load.buffer); found != of_.end()) return found->second;
    if (load.buffer < 0 || !dag_.stage(load.buffer).placeholder) return {};
    const Stage& from = dag_.stage(load.buffer);
    if (from.has_valid_range()) return {static_cast<double>(from.valid_min), static_cast<double>(from.valid_max)};
    return IsNarrowFloat(from.dtype) ? ElementRange{-LargestOf(from.dtype), LargestOf(from.dtype)} : ElementRange{};
  }

  // The expression of a stage that does not reduce; null for others.
  const Expr* BodyOf(int stage) const {
    if (stage < 0 || dag_.stage(stage).reduces()) return nullptr;
    const auto in_body = std::find(r_.body.begin(), r_.body.end(), stage);
    if (in_body != r_.body.end()) return &r_.expressions[in_body - r_.body.begin()];
    const auto in_start = std::find(r_.start.begin(), r_.start.end(), stage);
    return in_start != r_.start.end() ? &r_.start_expressions[in_start - r_.start.begin()] : nullptr;
  }

  // What an element is computed as, where stages only hand it on.
  Expr Behind(Expr e) const {
    for (int i = 0; i < kLongestChain; ++i) {
      if (e->kind == ExprKind::kCast && IsFloat(e->dtype)) {
        e = e->args[0];
        continue;
      }
      const Expr* const body = e->kind == ExprKind::kLoad ? BodyOf(e->buffer) : nullptr;
      if (body == nullptr) return e;
      const Stage& stage = dag_.stage(e->buffer);
      VarMap axes;
      for (size_t d = 0; d < stage.axes.size(); ++d) axes[stage.axes[d].var.get()] = e->args[d];
      e = Substitute(*body, axes);
    }
    return e;
  }

  bool IsOne(const Expr& e) const { return e->kind == ExprKind::kFloatImm && e->fvalue == 1; }
  bool IsShare(const Expr& e) const {
    const ElementRange range = Of(e);
    return range.lower >= 0 && range.upper <= 1;
  }

  // What an expression is a weighted mean of, by a share z between 0 and 1: (1 - z) x + z y, y + z (x - y), and y - z
  // y, a mean of y and 0. Empty if it is none.
  std::vector<Expr> MeanOf(const Expr& e) const {
    const Expr a = Behind(e->args[0]), b = Behind(e->args[1]);
    if (e->kind == ExprKind::kSub) {
      for (int i = 0; i < 2 && b->kind == ExprKind::kMul; ++i)
        if (Equal(Behind(b->args[i]), a) && IsShare(Behind(b->args[1 - i]))) return {a, FloatImm(0)};
      return {};
    }
    for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
      if (first->kind != ExprKind::kMul) continue;
      for (int i = 0; i < 2; ++i) {
        const Expr difference = Behind(first->args[i]), other = Behind(first->args[1 - i]);
        if (difference->kind != ExprKind::kSub) continue;
        const Expr from = Behind(difference->args[0]), taken = Behind(difference->args[1]);
        if (Equal(taken, second) && IsShare(other)) return {from, second};
        for (int j = 0; j < 2 && IsOne(from) && second->kind == ExprKind::kMul; ++j)
          if (Equal(taken, Behind(second->args[j])) && IsShare(taken)) return {other, Behind(second->args[1 - j])};
      }
    }
    return {};
  }

  const ComputeDag& dag_;
  const Recurrence& r_;
  std::map<int, ElementRange> of_;  // by stage or buffer
};

absl::Status Refuse(const Stage& stage, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("a recurrence on tensor cores: stage ", stage.name, ": ", why));
}

const Expr& Bare(const Expr& factor) { return factor->kind == ExprKind::kCast ? factor->args[0] : factor; }

// By warps, of factors that fill a register in pairs.
const TensorIntrinsic* IntrinsicOf(DType weight) {
  for (const TensorIntrinsic& intrinsic : TensorIntrinsics())
    if (!intrinsic.groups && intrinsic.factors_per_register() == 2 && intrinsic.FindFactor(weight) != nullptr)
      return &intrinsic;
  return nullptr;
}

// Whether a load is of all units in the row of the stage.
bool ReadsOwnRow(const Stage& stage, const Stage& from, const ExprNode& load) {
  if (from.axes.size() != stage.axes.size()) return false;
  for (size_t d = 0; d < from.axes.size(); ++d) {
    const bool last = d + 1 == from.axes.size();
    if (load.args[d].get() != (last ? stage.reduce_axes[0] : stage.axes[d]).var.get()) return false;
    if (!last && from.axes[d].extent != stage.axes[d].extent) return false;
  }
  return from.axes.back().extent == stage.reduce_axes[0].extent;
}

}  // namespace

double LargestElement(const RecurrentSchedule& schedule, int stage) {
  const ElementRange bounds = StateBounds(schedule).OfStage(stage);
  return std::max(std::abs(bounds.lower), std::abs(bounds.upper));
}

absl::StatusOr<RecurrentProduct> ProductOf(const RecurrentSchedule& schedule, size_t i) {
  const Recurrence& r = schedule.recurrence;
  const Stage& stage = schedule.dag.stage(r.body[i]);
  const Expr& body = r.expressions[i];
  if (body->kind != ExprKind::kMul || stage.dtype != DType::kFloat32) return Refuse(stage, "it is no sum of products");
  const std::vector<Expr> weights = WeightLoads(r, stage, body);
  if (weights.size() != 1) return Refuse(stage, "it has no one tensor of weights");
  RecurrentProduct product;
  product.weight = weights[0];
  for (int f = 0; f < 2; ++f)
    if (Equal(Bare(body->args[f]), product.weight)) product.state = Bare(body->args[1 - f]);
  const TensorIntrinsic* const intrinsic = IntrinsicOf(product.weight->dtype);
  if (product.state == nullptr || product.state->kind != ExprKind::kLoad)
    return Refuse(stage, "it is no sum of the state by weights");
  if (intrinsic == nullptr) return Refuse(stage, "its weights are neither float16 nor bfloat16");
  product.mode = intrinsic->mode;
  const int id = r.SourceOf(product.state->buffer);
  const Stage& from = schedule.dag.stage(id);
  if (r.IsUniform(from) || r.GroupsOf(from) != 1 || !ReadsOwnRow(stage, from, *product.state))
    return Refuse(stage, "it does not sum all units of its row");
  if (stage.terms() % intrinsic->depth() != 0)
    return Refuse(stage, absl::StrCat(stage.terms(), " units are no multiple of ", intrinsic->depth()));
  if (from.dtype != product.weight->dtype && from.dtype != DType::kFloat32)
    return Refuse(stage, "the state is of another type than the weights");
  product.parts = from.dtype == DType::kFloat32 ? 2 : 1;
  if (product.parts == 2) {
    double largest = LargestElement(schedule, id);
    for (size_t c = 0; c < r.carried.size(); ++c)
      if (r.carried[c].source == id)
        largest = std::max(largest, LargestElement(schedule, Recurrence::BufferOf(static_cast<int>(c))));
    const DType type = product.weight->dtype;
    if (!(largest <= LargestOf(type)))
      return Refuse(stage, absl::StrCat("elements of the state may be too large for ", NameOf(type)));
  }
  return product;
}

absl::Status CheckRecurrentProducts(const RecurrentSchedule& schedule) {
  const Recurrence& r = schedule.recurrence;
  const ComputeDag& dag = schedule.dag;
  const Expr unit = MakeVar("unit");
  Analyzer analyzer;
  analyzer.Bind(unit, r.units);
  analyzer.Bind(r.step, r.steps);
  const int64_t rows = r.RowsOf(dag.stage(r.body.front()));
  const auto apart = [&](const Stage& stage, const Expr& body) {
    if (r.RowsOf(stage) != rows) return Refuse(stage, "it has other rows");
    bool own = true;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t group = 0; group < r.GroupsOf(stage); ++group)
        Visit(analyzer.Simplify(Substitute(body, AxesAt(r, stage, IntImm(row), group, unit))), [&](const ExprNode& e) {
          if (e.kind != ExprKind::kLoad || (e.buffer >= 0 && dag.stage(e.buffer).placeholder)) return;
          const auto element = OwnElement(r, dag.stage(r.SourceOf(e.buffer)), e.args, unit, analyzer);
          own = own && element.has_value() && element->row == row;
        });
    return own ? absl::OkStatus() : Refuse(stage, "it reads other rows");
  };
  for (size_t i = 0; i < r.start.size(); ++i) RETURN_IF_ERROR(apart(dag.stage(r.start[i]), r.start_expressions[i]));
  for (const Recurrence::Carried& carried : r.carried)
    RETURN_IF_ERROR(apart(dag.stage(carried.source), carried.initial));
  TensorMode mode = TensorMode::kNone;
  for (size_t i = 0; i < r.body.size(); ++i) {
    const Stage& stage = dag.stage(r.body[i]);
    if (!stage.reduces()) {
      RETURN_IF_ERROR(apart(stage, r.expressions[i]));
      continue;
    }
    ASSIGN_OR_RETURN(const RecurrentProduct product, ProductOf(schedule, i));
    if (mode != TensorMode::kNone && mode != product.mode)
      return Refuse(stage, "its weights are of another type than those of other sums");
    mode = product.mode;
  }
  return absl::OkStatus();
}

}  // namespace diapason
