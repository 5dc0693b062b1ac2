#include "compiler/lower/core_matrix_copies.h"

#include <vector>

#include "compiler/lower/element_index.h"
#include "compiler/lower/guards.h"

namespace diapason {

Stmt CoreMatrixCopies::Finish(int id, size_t position, const Expr& iteration, int64_t slots) {
  std::vector<Stmt> all;
  bool publish = false;
  for (int child : nest_.kernel.state.topological()) {
    const StageState& stage = nest_.kernel.state.stage(child);
    if (stage.attach != StageState::Attach::kAt || stage.attach_stage != id || !stage.core_matrices) continue;
    if (nest_.kernel.bounds.stages[child].attach_position != static_cast<int>(position)) continue;
    const int low = nest_.buffers.low_parts(child);
    if (low >= 0) all.push_back(PartsOf(child, iteration, slots, {FactorPart::kLow, low, 2}));
    if (nest_.kernel.IsPublished(child) && nest_.kernel.state.is_rounded_in_place(child))
      all.push_back(PartsOf(child, iteration, slots, {FactorPart::kRounded, child, slots}));
    // What tensor copies bring needs no fence.
    publish = publish || (nest_.kernel.IsPublished(child) && nest_.buffers.arrivals(child) < 0);
  }
  if (publish) all.push_back(MakeGroupSync(GroupSync::kPublish));
  return MakeSeq(all);
}

// Its own stores are all that a thread has to wait for.
Stmt CoreMatrixCopies::PartsOf(int copy, const Expr& iteration, int64_t slots, const PartsTo& to) {
  parts_.values.Prepare(copy);
  const StageState& stage = nest_.kernel.state.stage(copy);
  const StageValues& values = nest_.stages[copy];
  size_t end = stage.order.size();
  int64_t elements = 1;
  VarMap first;
  if (end > 0 && parts_.loops.KindOf(copy, end - 1) == ForKind::kVectorize) {
    --end;
    elements = nest_.kernel.extent(copy, end);
    first[values.leaf[end].get()] = IntImm(0);
  }
  return emitter_.EmitLoops(copy, 0, end, [&]() -> Stmt {
    const Expr at = Substitute(FlatIndex(nest_.kernel, copy, values.compact), first);
    auto in_slot = [&](int64_t count) {
      if (slots == 1) return nest_.analyzer.Simplify(at);
      const int64_t stride = nest_.kernel.bounds.stages[copy].slot_stride();
      return nest_.analyzer.Simplify(Add(Mul(FloorMod(iteration, count), IntImm(stride)), at));
    };
    Stmt store =
        MakeFactorParts(to.part, to.buffer, in_slot(to.slots), elements, Load(copy, stage.op.dtype, {in_slot(slots)}));
    std::vector<Expr> inside;
    for (const Expr& guard : GuardsOf(nest_, copy).spatial)
      inside.push_back(nest_.analyzer.Simplify(Substitute(guard, first)));
    for (size_t i = inside.size(); i-- > 0;) store = MakeIf(inside[i], store);
    return store;
  });
}

}  // namespace diapason
