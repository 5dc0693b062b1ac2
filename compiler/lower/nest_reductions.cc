// Reductions: into registers, across the threads of a block, on tensor cores.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/guards.h"
#include "compiler/lower/nest.h"
#include "compiler/lower/warp_products.h"

namespace diapason {

// NOLINTNEXTLINE(readability-function-size): its parts share what is computed at the beginning
Stmt NestBuilder::EmitReduction(int id) {
  const StageState& stage = state_.stage(id);
  const bool root = stage.attach == StageState::Attach::kRoot;
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  for (size_t p = first; p < stage.order.size(); ++p)
    if (stage.loops[stage.order[p]].annotation == Annotation::kThreadX && stage.loops[stage.order[p]].reduce)
      return EmitCrossThread(id);
  const int innermost = stage.order.back();
  if (stage.loops[innermost].annotation == Annotation::kVectorize && stage.loops[innermost].reduce &&
      bounds_.stages[id].extent[innermost] > 1)
    return EmitCrossLane(id);
  NameSlots(id);
  const Expr index = parts_.expressions.StoreIndex(id);
  bool unsafe = false;
  const Expr value = parts_.expressions.Lower(id, stage.op.body, &unsafe);
  const std::vector<Stmt> shuffles = parts_.lanes.TakeShuffles();
  const Guards guards = GuardsOf(nest_, id);
  std::vector<Expr> update_guards = guards.spatial;
  if (unsafe) update_guards.insert(update_guards.end(), guards.domain.begin(), guards.domain.end());
  if (unsafe || !PaddingIsHarmless(kernel_, id))
    update_guards.insert(update_guards.end(), guards.reduce.begin(), guards.reduce.end());
  const std::vector<Expr>& stored = guards.spatial;
  const size_t held = parts_.loops.RegisterPosition(id, first);
  const bool carried = stage.carry.is_carried() && stage.carry.target != id;
  const bool carrier = stage.carry.is_carried_by(id);
  const bool promote =
      carried || ((held > first || root || IsOfBlock(stage.memory) || parts_.loops.InSerialLoops(id, first)) &&
                  parts_.loops.HasReduction(id, held));
  const Expr growth = carried_.GrowthOf(id);
  int buffer = id;
  Expr place = index;
  if (promote) {
    buffer = nest_.buffers.NewId();
    int64_t elements = 1;
    place = IntImm(0);
    for (size_t p = held; p < stage.order.size(); ++p) {
      if (stage.loops[stage.order[p]].reduce) continue;
      const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
      if (extent > 1) place = Add(Mul(place, IntImm(extent)), nest_.stages[id].leaf[p]);
      elements *= extent;
    }
    place = analyzer_.Simplify(place);
    nest_.buffers.Declare({buffer, Identifier(stage.op.name) + "_sum", stage.op.dtype, Scope::kLocal, elements, true,
                           kernel_.target.is_gpu() ? 16 : 64});
  }
  auto update = [&] {
    const Expr old = Load(buffer, stage.op.dtype, {place});
    return parts_.lanes.WithShuffles(
        id, shuffles, update_guards.empty(),
        MakeIf(And(update_guards), MakeStore(buffer, place, Combine(stage.op.combiner, old, value))));
  };
  auto copy = [&](bool in) {
    return parts_.loops.SpatialNest(id, held, [&](const VarMap& fresh) {
      const Expr outside = Substitute(index, fresh), inside = Substitute(place, fresh);
      std::vector<Expr> conditions;
      for (const Expr& guard : stored) conditions.push_back(Substitute(guard, fresh));
      Expr held_before = Load(id, stage.op.dtype, {outside});
      if (carried && growth) held_before = Mul(held_before, Substitute(growth, fresh));
      return MakeIf(And(conditions), in ? MakeStore(buffer, inside, held_before)
                                        : MakeStore(id, outside, Load(buffer, stage.op.dtype, {inside})));
    });
  };
  // The loops [first, held) come to an element more than once, or to several: where they reduce, sums wait in memory.
  std::vector<Expr> begun;
  for (size_t p = first; p < held; ++p) {
    if (bounds_.stages[id].extent[stage.order[p]] == 1) continue;
    if (stage.loops[stage.order[p]].reduce) begun.push_back(Eq(nest_.stages[id].leaf[p], IntImm(0)));
  }
  // Registers begin with the identity, and memory is written when the sum is done; it never holds the identity.
  auto begin = [&]() -> Stmt {
    if (carried) return copy(true);
    const Stmt zero = parts_.loops.SpatialNest(id, held, [&](const VarMap& fresh) {
      return MakeStore(buffer, Substitute(place, fresh), IdentityOf(stage.op.combiner, stage.op.dtype));
    });
    if (begun.empty()) return zero;
    return MakeSeq({MakeIf(And(begun), zero), MakeIf(Not(And(begun)), copy(true))});
  };
  // The sums of the terms before this step, relative to the maximum of this step: where it grew, as far as a thread
  // knows.
  auto rescale = [&]() -> Stmt {
    if (!growth) return nullptr;
    const Stmt all = parts_.loops.SpatialNest(id, held, [&](const VarMap& fresh) {
      const Expr inside = Substitute(place, fresh);
      return MakeStore(buffer, inside, Mul(Load(buffer, stage.op.dtype, {inside}), Substitute(growth, fresh)));
    });
    return MakeIf(carried_.MayGrow(stage.carry.maximum), all);
  };
  const size_t step =
      static_cast<size_t>(std::find(stage.order.begin(), stage.order.end(), stage.carry.loop) - stage.order.begin());
  if (carrier && ((!promote && stage.memory != Memory::kLocal) || held > step || !begun.empty())) {
    nest_.Refuse(absl::InvalidArgumentError(
        absl::StrCat("stage ", stage.op.name, ": a reduction that carries others has its own sums in registers")));
    return nullptr;
  }
  const auto loops_of_reduction = [&](size_t end, const std::function<Stmt()>& inner) {
    if (!carrier) return EmitLoops(id, held, end, inner);
    const Stmt start = carried_.Begin(id);
    return MakeSeq({start, EmitLoops(id, held, step + 1, [&] {
                      return MakeSeq({rescale(), EmitLoops(id, step + 1, end, inner)});
                    })});
  };
  auto reduce = [&]() -> Stmt {
    Stmt loops;
    if (kernel_.OnTensorCores(id)) {
      if (root || stage.memory != Memory::kLocal || !update_guards.empty() || held + 3 > stage.order.size()) {
        nest_.Refuse(absl::InvalidArgumentError(absl::StrCat(
            "stage ", stage.op.name, ": a product on tensor cores has its sums in registers and no predicates")));
        return nullptr;
      }
      size_t tiles = stage.order.size() - 3;
      while (tiles > held && !stage.loops[stage.order[tiles - 1]].reduce) --tiles;
      loops = loops_of_reduction(tiles, [&] {
        return kernel_.OnWarpgroups(id) ? EmitGroupProducts(parts_, {id, tiles, buffer, place}, handover_)
                                        : EmitWarpProducts(parts_, {id, tiles, buffer, place});
      });
    } else {
      loops = loops_of_reduction(stage.order.size(), update);
    }
    return promote ? MakeSeq({begin(), loops, copy(false)}) : loops;
  };
  auto rest = [&]() -> Stmt {
    if (promote) return carried_.WithGrowth(id, first, index, stored, EmitLoops(id, first, held, reduce));
    const Expr identity = IdentityOf(stage.op.combiner, stage.op.dtype);
    Stmt init = parts_.loops.SpatialNest(id, first, [&](const VarMap& fresh) {
      std::vector<Expr> conditions;
      for (const Expr& guard : stored) conditions.push_back(Substitute(guard, fresh));
      return MakeIf(And(conditions), MakeStore(id, Substitute(index, fresh), identity));
    });
    return carried_.WithGrowth(id, first, index, stored, MakeSeq({init, EmitLoops(id, first, held, reduce)}));
  };
  return EmitLoops(id, 0, first, rest);
}

// Each thread reduces its share into a register, the shares meet in shared memory as a tree, and every thread reads the
// result. REQUIRES: all spatial loops are outside all reduce loops, the thread loop is the innermost.
Stmt NestBuilder::EmitCrossThread(int id) {
  const StageState& stage = state_.stage(id);
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  const size_t last = stage.order.size() - 1;
  for (size_t p = first; p <= last; ++p) {
    const bool thread = stage.loops[stage.order[p]].annotation == Annotation::kThreadX;
    if (!stage.loops[stage.order[p]].reduce || thread != (p == last)) {
      nest_.Refuse(absl::InvalidArgumentError(
          absl::StrCat("stage ", stage.op.name,
                       ": a cross-thread reduction has its spatial loops outside and its thread loop innermost")));
      return nullptr;
    }
  }
  const int64_t width = bounds_.stages[id].extent[stage.order[last]];
  const DType dtype = stage.op.dtype;
  const int part = nest_.buffers.NewId(), tree = nest_.buffers.NewId();
  nest_.buffers.Declare({part, absl::StrCat("part", part), dtype, Scope::kLocal, 1, true, 0});
  nest_.buffers.Declare({tree, absl::StrCat("tree", tree), dtype, Scope::kShared, width, true, 0});
  bool unsafe = false;
  const Expr value = parts_.expressions.Lower(id, stage.op.body, &unsafe);
  const Guards guards = GuardsOf(nest_, id);
  std::vector<Expr> conditions = guards.spatial;
  conditions.insert(conditions.end(), guards.reduce.begin(), guards.reduce.end());
  if (unsafe) conditions.insert(conditions.end(), guards.domain.begin(), guards.domain.end());
  const Expr zero = IntImm(0), thread = nest_.stages[id].leaf[last];
  const Expr part_value = Load(part, dtype, {zero});

  Stmt share = MakeIf(And(conditions), MakeStore(part, zero, Combine(stage.op.combiner, part_value, value)));
  for (size_t p = last; p-- > first;) share = parts_.loops.Around(id, p, share);
  std::vector<Stmt> steps{MakeStore(part, zero, IdentityOf(stage.op.combiner, dtype)), share,
                          MakeStore(tree, thread, part_value)};
  int64_t half = 1;
  while (half * 2 < width) half *= 2;
  std::vector<Stmt> meet;
  for (; half >= 1 && width > 1; half /= 2) {
    Expr mine = Load(tree, dtype, {thread}), other = Load(tree, dtype, {Add(thread, IntImm(half))});
    std::vector<Expr> active{Lt(thread, IntImm(half))};
    if (!analyzer_.Proves(Lt(IntImm(2 * half - 1), IntImm(width))))
      active.push_back(Lt(Add(thread, IntImm(half)), IntImm(width)));
    meet.push_back(MakeBarrier());
    meet.push_back(MakeFor(ForKind::kThreadX, thread, width,
                           MakeIf(And(active), MakeStore(tree, thread, Combine(stage.op.combiner, mine, other)))));
  }
  meet.push_back(MakeBarrier());
  const bool root = stage.attach == StageState::Attach::kRoot;
  Stmt result = MakeStore(id, parts_.expressions.StoreIndex(id), Load(tree, dtype, {zero}));
  std::vector<Expr> store_guards = guards.spatial;
  if (root) {
    result = MakeFor(ForKind::kThreadX, thread, width, MakeIf(Eq(thread, zero), result));
  }
  result = MakeIf(And(store_guards), result);
  Stmt work = MakeFor(ForKind::kThreadX, thread, width, MakeSeq(steps));
  if (width < kernel_.threads) {
    work = MakeFor(ForKind::kThreadX, thread, kernel_.threads, MakeIf(Lt(thread, IntImm(width)), MakeSeq(steps)));
    for (Stmt& s : meet)
      if (s->kind == StmtKind::kFor) s = MakeFor(ForKind::kThreadX, thread, kernel_.threads, s->body[0]);
  }
  std::vector<Stmt> all{work};
  all.insert(all.end(), meet.begin(), meet.end());
  all.push_back(result);
  all.push_back(MakeBarrier());
  Stmt inner = MakeSeq(all);
  return EmitLoops(id, 0, first, [&] { return inner; });
}

// Each lane of a vector reduces its share, the shares meet by halves. REQUIRES: all spatial loops are outside all
// reduce loops, the vector is the innermost.
Stmt NestBuilder::EmitCrossLane(int id) {
  const StageState& stage = state_.stage(id);
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  const size_t last = stage.order.size() - 1;
  for (size_t p = first; p <= last; ++p) {
    if (stage.loops[stage.order[p]].reduce) continue;
    nest_.Refuse(absl::InvalidArgumentError(absl::StrCat(
        "stage ", stage.op.name, ": a reduction across the lanes of a vector has its spatial loops outside")));
    return nullptr;
  }
  const int64_t width = bounds_.stages[id].extent[stage.order[last]];
  const DType dtype = stage.op.dtype;
  const int part = nest_.buffers.NewId(), tree = nest_.buffers.NewId();
  nest_.buffers.Declare({part, absl::StrCat("part", part), dtype, Scope::kLocal, width, true, 64});
  nest_.buffers.Declare({tree, absl::StrCat("tree", tree), dtype, Scope::kLocal, width, true, 64});
  bool unsafe = false;
  const Expr value = parts_.expressions.Lower(id, stage.op.body, &unsafe);
  const Guards guards = GuardsOf(nest_, id);
  std::vector<Expr> conditions = guards.spatial;
  conditions.insert(conditions.end(), guards.reduce.begin(), guards.reduce.end());
  if (unsafe) conditions.insert(conditions.end(), guards.domain.begin(), guards.domain.end());
  const auto over = [&](int64_t lanes, const std::function<Stmt(const Expr&)>& make) {
    if (lanes == 1) return make(IntImm(0));
    const Expr lane = MakeVar("lane");
    analyzer_.Bind(lane, lanes);
    return MakeFor(ForKind::kVectorize, lane, lanes, make(lane));
  };
  const Expr lane = nest_.stages[id].leaf[last];
  Stmt share =
      MakeIf(And(conditions), MakeStore(part, lane, Combine(stage.op.combiner, Load(part, dtype, {lane}), value)));
  share = MakeFor(ForKind::kVectorize, lane, width, share);
  for (size_t p = last; p-- > first;) share = parts_.loops.Around(id, p, share);
  std::vector<Stmt> steps{
      over(width, [&](const Expr& l) { return MakeStore(part, l, IdentityOf(stage.op.combiner, dtype)); }), share,
      over(width, [&](const Expr& l) { return MakeStore(tree, l, Load(part, dtype, {l})); })};
  for (int64_t left = width; left > 1; left -= left / 2) {
    const Expr far = IntImm(left - left / 2);
    steps.push_back(over(left / 2, [&](const Expr& l) {
      return MakeStore(tree, l, Combine(stage.op.combiner, Load(tree, dtype, {l}), Load(tree, dtype, {Add(l, far)})));
    }));
  }
  steps.push_back(
      MakeIf(And(guards.spatial), MakeStore(id, parts_.expressions.StoreIndex(id), Load(tree, dtype, {IntImm(0)}))));
  const Stmt inner = MakeSeq(steps);
  return EmitLoops(id, 0, first, [&] { return inner; });
}

}  // namespace diapason
