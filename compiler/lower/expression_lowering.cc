#include "compiler/lower/expression_lowering.h"

#include <algorithm>
#include <functional>

#include "compiler/lower/element_index.h"
#include "compiler/lower/loop_values.h"
#include "compiler/lower/split_sums.h"

namespace diapason {
namespace {

// The expression that is not negative exactly when an integer comparison holds; null for anything else.
Expr Slack(const Expr& comparison) {
  const bool less = comparison->kind == ExprKind::kLt, less_equal = comparison->kind == ExprKind::kLe;
  if ((!less && !less_equal) || comparison->args[0]->dtype != DType::kInt64) return nullptr;
  return Sub(Sub(comparison->args[1], comparison->args[0]), IntImm(less ? 1 : 0));
}

}  // namespace

Expr ExpressionLowering::CompactIndex(const Access& access, int dim, const Expr& real) const {
  const Region& region = nest_.kernel.bounds.stages[access.producer].region[dim];
  IndexTerms terms;
  if (region.full || !nest_.kernel.skeleton.SplitIndex(nest_.kernel.bounds, access, dim, &terms)) return real;
  if (region.levels.size() == 1) {
    const int64_t unit = region.levels[0].unit;
    return Add(AtomSum(nest_, terms.inner, unit), IntImm((terms.constant - region.constant_min) / unit));
  }
  Expr sum = IntImm(0);
  for (const Term& t : terms.inner) {
    int64_t compact = 0;
    LevelOf(region, t.coefficient, &compact);
    sum = Add(sum, Mul(nest_.stages[t.stage].value[t.loop], IntImm(compact)));
  }
  return sum;
}

// True if a comparison follows from the ranges of variables, or from one comparison among the conditions of the
// branches around the expression that is lowered: both as "difference >= 0", the one wanted no smaller.
bool ExpressionLowering::Holds(const Expr& comparison) {
  if (nest_.analyzer.Proves(comparison)) return true;
  const Expr wanted = Slack(comparison);
  if (!wanted) return false;  // it has folded to a literal
  std::function<bool(const Expr&)> implies = [&](const Expr& condition) {
    if (condition->kind == ExprKind::kAnd) return implies(condition->args[0]) || implies(condition->args[1]);
    const Expr given = Slack(condition);
    if (!given) return IsInt(condition, 0);
    const Expr rest = nest_.analyzer.Simplify(Sub(wanted, given));
    return nest_.analyzer.Proves(Le(IntImm(0), rest));
  };
  return std::any_of(conditions_.begin(), conditions_.end(), implies);
}

Expr ExpressionLowering::LowerLoad(int id, const Expr& load, bool* unsafe) {
  const KernelContext& kernel = nest_.kernel;
  const Access& access = *nest_.stages[id].access_of.at(load.get());
  const StageState& producer = kernel.state.stage(load->buffer);
  const bool attached = producer.attach == StageState::Attach::kAt;
  std::vector<Expr> indices;
  for (size_t d = 0; d < load->args.size(); ++d) {
    Expr real = nest_.analyzer.Simplify(Lower(id, load->args[d], unsafe));
    const bool full = attached && kernel.bounds.stages[load->buffer].region[d].full;
    if (attached) real = nest_.analyzer.Simplify(CompactIndex(access, static_cast<int>(d), real));
    if (!attached || full) {
      int64_t extent = producer.op.axes[d].extent;
      if (!producer.layout_factors.empty()) {
        const int64_t factor = std::max<int64_t>(1, producer.layout_factors[d].Eval({}));
        extent = (extent + factor - 1) / factor * factor;
      }
      if (!Holds(Lt(real, IntImm(extent))) || !Holds(Le(IntImm(0), real))) *unsafe = true;
    }
    indices.push_back(real);
  }
  if (kernel.IsHeldByLanes(load->buffer)) return lanes_.LoadElement(id, load, indices, !conditions_.empty());
  Expr flat = FlatIndex(kernel, load->buffer, indices);
  if (const Expr& slot = nest_.stages[load->buffer].read_slot)
    flat = Add(Mul(slot, IntImm(kernel.bounds.stages[load->buffer].slot_stride())), flat);
  flat = nest_.analyzer.Simplify(flat);
  if (load->buffer == kernel.split.tile && kernel.split.parts() > 1) return SumOfParts(nest_, flat);
  return Load(load->buffer, load->dtype, {flat});
}

Expr ExpressionLowering::Lower(int id, const Expr& e, bool* unsafe) {
  const StageState& stage = nest_.kernel.state.stage(id);
  if (e->kind == ExprKind::kVar) {
    for (int a = 0; a < stage.axis_count(); ++a)
      if (stage.axis(a).var == e) return nest_.stages[id].axis[a];
    return e;
  }
  if (e->kind == ExprKind::kLoad) return LowerLoad(id, e, unsafe);
  if (e->args.empty()) return e;
  if (e->kind == ExprKind::kSelect) {
    // Loads of a branch happen only where its condition holds.
    const Expr condition = nest_.analyzer.Simplify(Lower(id, e->args[0], unsafe));
    conditions_.push_back(condition);
    const Expr then_value = Lower(id, e->args[1], unsafe);
    conditions_.back() = Not(condition);
    const Expr else_value = Lower(id, e->args[2], unsafe);
    conditions_.pop_back();
    return Select(condition, then_value, else_value);
  }
  std::vector<Expr> args;
  for (const Expr& arg : e->args) args.push_back(Lower(id, arg, unsafe));
  return Rebuild(e, args);
}

Expr ExpressionLowering::StoreIndex(int id) {
  const KernelContext& kernel = nest_.kernel;
  const StageValues& values = nest_.stages[id];
  if (kernel.IsHeldByLanes(id)) return lanes_.RegisterOf(id, values.value);
  const int64_t stride = kernel.bounds.stages[id].slot_stride();
  Expr flat = FlatIndex(kernel, id, values.compact);
  if (values.write_slot) flat = Add(Mul(values.write_slot, IntImm(stride)), flat);
  if (id == kernel.split.tile && kernel.split.thread_sets > 1) flat = Add(Mul(nest_.thread_set, IntImm(stride)), flat);
  return nest_.analyzer.Simplify(flat);
}

}  // namespace diapason
