#include "compiler/lower/carried_reductions.h"

#include <set>
#include <utility>

#include "compiler/lower/guards.h"

namespace diapason {

Expr CarriedReductions::GrowthOf(int id) {
  const Carry& carry = nest_.kernel.state.stage(id).carry;
  if (carry.maximum < 0) return nullptr;
  bool unsafe = false;  // rows beyond the tensor have elements of their own
  const Expr load = parts_.expressions.Lower(id, carry.maximum_load, &unsafe);
  return Load(nest_.buffers.growth(carry.maximum), load->dtype, load->args);
}

Expr CarriedReductions::MayGrow(int maximum) const {
  if (!nest_.kernel.IsHeldByLanes(maximum)) return IntImm(1, DType::kBool);
  const DType dtype = nest_.kernel.state.stage(maximum).op.dtype;
  Expr grows;
  for (int64_t i = 0; i < nest_.kernel.ElementsOf(maximum); ++i) {
    const Expr more = Ne(Load(nest_.buffers.growth(maximum), dtype, {IntImm(i)}), FloatImm(1, dtype));
    grows = grows ? Or(grows, more) : more;
  }
  return grows;
}

Stmt CarriedReductions::Begin(int carrier) {
  std::set<int> begun;
  for (int id : nest_.kernel.state.topological()) {
    const Carry& carry = nest_.kernel.state.stage(id).carry;
    if (!carry.is_carried_by(carrier)) continue;
    if (id != carrier) begun.insert(id);
    if (carry.maximum >= 0) begun.insert(carry.maximum);
  }
  std::vector<Stmt> all;
  for (int id : begun) all.push_back(BeginStage(id));
  for (int id : begun)
    if (nest_.buffers.scale(id) >= 0) all.push_back(HoldScale(id));
  return MakeSeq(std::move(all));
}

// A maximum begins with the least finite number: exp(-inf - it) is 0 where exp(-inf - -inf) is no number.
Stmt CarriedReductions::BeginStage(int id) {
  parts_.values.Prepare(id);
  const StageState& stage = nest_.kernel.state.stage(id);
  const DType dtype = stage.op.dtype;
  const Expr start =
      stage.op.combiner == Combiner::kMax ? FloatImm(-LargestOf(dtype), dtype) : IdentityOf(stage.op.combiner, dtype);
  const Expr index = parts_.expressions.StoreIndex(id);
  const Expr guard = And(GuardsOf(nest_, id).spatial);
  const size_t first = parts_.loops.FirstReduction(id);
  return emitter_.EmitLoops(id, 0, first, [&] {
    return parts_.loops.SpatialNest(id, first, [&](const VarMap& fresh) {
      return MakeIf(Substitute(guard, fresh), MakeStore(id, Substitute(index, fresh), start));
    });
  });
}

Stmt CarriedReductions::HoldScale(int maximum) {
  Expr scale;
  for (const StageState& stage : nest_.kernel.state.stages())
    if (stage.carry.maximum == maximum && stage.carry.scale) scale = stage.carry.scale;
  scale = Rewrite(
      scale, [](const Expr& e) { return e->kind == ExprKind::kLoad ? Load(e->buffer, e->dtype, {IntImm(0)}) : e; });
  held_.emplace_back(scale, nest_.buffers.scale(maximum));
  const Expr thread = MakeVar("thread");
  return MakeFor(ForKind::kThreadX, thread, nest_.kernel.threads,
                 MakeStore(held_.back().second, IntImm(0), std::move(scale)));
}

Expr CarriedReductions::WithHeldScales(Expr value) const {
  for (const auto& [scale, buffer] : held_) {
    value = Rewrite(value, [&, &scale = scale, &buffer = buffer](const Expr& e) {
      return Equal(e, scale) ? Load(buffer, scale->dtype, {IntImm(0)}) : e;
    });
  }
  return value;
}

Stmt CarriedReductions::WithGrowth(int id, size_t first, const Expr& index, const std::vector<Expr>& guards,
                                   Stmt maximum) {
  const int growth = nest_.buffers.growth(id);
  if (growth < 0) return maximum;
  const DType dtype = nest_.kernel.state.stage(id).op.dtype;
  const auto store = [&](const std::function<Expr(const Expr&)>& value) {
    return parts_.loops.SpatialNest(id, first, [&](const VarMap& fresh) {
      const Expr at = Substitute(index, fresh);
      return MakeIf(Substitute(And(guards), fresh), MakeStore(growth, at, value(at)));
    });
  };
  const Stmt before = store([&](const Expr& at) { return Load(id, dtype, {at}); });
  const int scale = nest_.buffers.scale(id);
  const Stmt after = store([&](const Expr& at) {
    const Expr difference = Sub(Load(growth, dtype, {at}), Load(id, dtype, {at}));
    return Call("exp", {scale < 0 ? difference : Mul(Load(scale, dtype, {IntImm(0)}), difference)});
  });
  return MakeSeq({before, std::move(maximum), after});
}

}  // namespace diapason
