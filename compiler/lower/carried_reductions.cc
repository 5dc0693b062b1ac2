// Reductions that a loop of another stage carries (StepKind::kCarry): what they hold before the first step, and what
// sums relative to a maximum are multiplied by when it grows.
#include <algorithm>
#include <set>

#include "compiler/lower/guards.h"
#include "compiler/lower/nest.h"

namespace diapason {

// exp(maximum before - maximum now) of the element that the stage's loops are at; null where nothing is relative to a
// maximum.
Expr NestBuilder::GrowthOf(int id) {
  const Carry& carry = state_.stage(id).carry;
  if (carry.maximum < 0) return nullptr;
  bool unsafe = false;  // rows beyond the tensor have elements of their own
  const Expr load = parts_.expressions.Lower(id, carry.maximum_load, &unsafe);
  return Load(nest_.buffers.growth(carry.maximum), load->dtype, load->args);
}

// Whether one of the maxima that this thread has is larger than before; true where others have them.
Expr NestBuilder::MayGrow(int maximum) const {
  if (!kernel_.IsHeldByLanes(maximum)) return IntImm(1, DType::kBool);
  const DType dtype = state_.stage(maximum).op.dtype;
  Expr grows;
  for (int64_t i = 0; i < kernel_.ElementsOf(maximum); ++i) {
    const Expr more = Ne(Load(nest_.buffers.growth(maximum), dtype, {IntImm(i)}), FloatImm(1, dtype));
    grows = grows ? Or(grows, more) : more;
  }
  return grows;
}

// Before the first step: of what the loops of `carrier` carry, and of the maxima.
Stmt NestBuilder::BeginCarried(int carrier) {
  std::set<int> begun;
  for (int id : state_.topological()) {
    const Carry& carry = state_.stage(id).carry;
    if (!carry.is_carried_by(carrier)) continue;
    if (id != carrier) begun.insert(id);
    if (carry.maximum >= 0) begun.insert(carry.maximum);
  }
  std::vector<Stmt> all;
  for (int id : begun) all.push_back(BeginCarriedStage(id));
  return MakeSeq(std::move(all));
}

// A maximum begins with the least finite number: exp(-inf - it) is 0 where exp(-inf - -inf) is no number.
Stmt NestBuilder::BeginCarriedStage(int id) {
  parts_.values.Prepare(id);
  const StageState& stage = state_.stage(id);
  const DType dtype = stage.op.dtype;
  const Expr start =
      stage.op.combiner == Combiner::kMax ? FloatImm(-LargestOf(dtype), dtype) : IdentityOf(stage.op.combiner, dtype);
  const Expr index = parts_.expressions.StoreIndex(id);
  const Expr guard = And(GuardsOf(nest_, id).spatial);
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  return EmitLoops(id, 0, first, [&] {
    return parts_.loops.SpatialNest(id, first, [&](const VarMap& fresh) {
      return MakeIf(Substitute(guard, fresh), MakeStore(id, Substitute(index, fresh), start));
    });
  });
}

// The statement that computes a maximum, with how much it grew; the statement alone where nobody asks.
Stmt NestBuilder::WithGrowth(int id, size_t first, const Expr& index, const std::vector<Expr>& guards, Stmt maximum) {
  const int growth = nest_.buffers.growth(id);
  if (growth < 0) return maximum;
  const DType dtype = state_.stage(id).op.dtype;
  const auto store = [&](const std::function<Expr(const Expr&)>& value) {
    return parts_.loops.SpatialNest(id, first, [&](const VarMap& fresh) {
      const Expr at = Substitute(index, fresh);
      return MakeIf(Substitute(And(guards), fresh), MakeStore(growth, at, value(at)));
    });
  };
  const Stmt before = store([&](const Expr& at) { return Load(id, dtype, {at}); });
  const Stmt after =
      store([&](const Expr& at) { return Call("exp", {Sub(Load(growth, dtype, {at}), Load(id, dtype, {at}))}); });
  return MakeSeq({before, std::move(maximum), after});
}

}  // namespace diapason
