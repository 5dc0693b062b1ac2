#include "compiler/lower/guards.h"

#include <algorithm>

namespace diapason {
namespace {

bool IsTrue(const Expr& e) { return e->kind == ExprKind::kIntImm && e->value != 0; }

// True for loads, and products and casts of loads.
bool IsProductOfLoads(const Expr& e) {
  if (e->kind == ExprKind::kLoad) return true;
  if (e->kind == ExprKind::kCast) return IsProductOfLoads(e->args[0]);
  if (e->kind == ExprKind::kMul) return IsProductOfLoads(e->args[0]) && IsProductOfLoads(e->args[1]);
  return false;
}

// Whether all that a stage reads is computed inside the kernel as well, or one number: then it may be computed for
// elements that the tensor does not have.
bool ReadsBlockAlone(const State& state, int id) {
  const std::vector<int> producers = state.Producers(id);
  return std::all_of(producers.begin(), producers.end(), [&](int producer) {
    const StageState& read = state.stage(producer);
    return read.attach == StageState::Attach::kAt || read.op.elements() == 1;
  });
}

// Whether elements of a stage along an axis are terms of a reduction: those which the tensor does not have must add
// nothing. Elsewhere they make elements of other stages that these do not have either.
bool IsReducedAlong(const KernelContext& kernel, int id, size_t axis) {
  for (int reader : kernel.state.Consumers(id)) {
    const auto spatial = static_cast<int>(kernel.state.stage(reader).op.axes.size());
    for (const Access& access : kernel.skeleton.accesses(reader)) {
      if (access.producer != id) continue;
      const Access::Dim& dim = access.dims[axis];
      const auto reduces = [&](const auto& term) { return term.first >= spatial; };
      if (!dim.affine || std::any_of(dim.axes.begin(), dim.axes.end(), reduces)) return true;
    }
  }
  return false;
}

}  // namespace

Guards GuardsOf(NestState& nest, int id) {
  const KernelContext& kernel = nest.kernel;
  const StageState& stage = kernel.state.stage(id);
  const StageBounds& b = kernel.bounds.stages[id];
  const StageValues& c = nest.stages[id];
  Guards guards;
  auto add = [&](std::vector<Expr>* to, const Expr& condition) {
    const Expr simple = nest.analyzer.Simplify(condition);
    if (!IsTrue(simple)) to->push_back(simple);
  };
  for (size_t l = 0; l < stage.loops.size(); ++l) {
    const struct Loop& loop = stage.loops[l];
    if (loop.origin == Loop::Origin::kReplica && !kernel.IsHeldByLanes(id))
      add(&guards.spatial, Eq(c.value[l], IntImm(0)));
    if (loop.pieces.empty()) continue;
    int64_t covered = 1;
    for (int piece : loop.pieces)
      covered *= piece == stage.carry.loop && stage.carry.target != id ? b.steps : b.extent[piece];
    if (covered > b.extent[l]) add(loop.reduce ? &guards.reduce : &guards.spatial, Lt(c.value[l], IntImm(b.extent[l])));
  }
  if (stage.attach == StageState::Attach::kAt || stage.image_of >= 0) {
    for (size_t a = 0; a < stage.op.axes.size(); ++a) {
      if (kernel.IsHeldByLanes(id) && ReadsBlockAlone(kernel.state, id) && !IsReducedAlong(kernel, id, a)) continue;
      add(&guards.domain, Le(IntImm(0), c.axis[a]));
      add(&guards.domain, Lt(c.axis[a], IntImm(stage.op.axes[a].extent)));
    }
  }
  return guards;
}

bool PaddingIsHarmless(const KernelContext& kernel, int id) {
  const StageState& stage = kernel.state.stage(id);
  if (stage.op.combiner != Combiner::kSum || !IsProductOfLoads(stage.op.body)) return false;
  for (const Access& access : kernel.skeleton.accesses(id))
    if (kernel.state.stage(access.producer).attach != StageState::Attach::kAt) return false;
  for (int a = static_cast<int>(stage.op.axes.size()); a < stage.axis_count(); ++a) {
    bool filled = false;
    for (const Access& access : kernel.skeleton.accesses(id)) {
      const StageState& producer = kernel.state.stage(access.producer);
      if (producer.op.reduces()) continue;
      for (size_t d = 0; d < access.dims.size(); ++d) {
        const Access::Dim& dim = access.dims[d];
        filled |= dim.affine && dim.constant == 0 && dim.axes.size() == 1 && dim.axes[0].first == a &&
                  dim.axes[0].second == 1 && producer.op.axes[d].extent == stage.axis(a).extent;
      }
    }
    if (!filled) return false;
  }
  return true;
}

}  // namespace diapason
