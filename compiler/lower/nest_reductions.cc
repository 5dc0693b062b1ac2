// Reductions: into registers, across the threads of a block, on tensor cores.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/nest.h"

namespace diapason {
// Other targets run the loops as they stand.
bool NestBuilder::OnTensorCores(int id) const {
  return state_.stage(id).tensor != TensorMode::kNone && target_.kind == TargetKind::kCuda;
}

bool NestBuilder::OnWarpgroups(int id) const {
  return OnTensorCores(id) && TensorIntrinsicOf(state_.stage(id).tensor).groups;
}

// Position from which on all loops are reduce loops or unrolled: the elements that are updated there can stay in
// registers.
size_t NestBuilder::RegisterPosition(int id, size_t first) const {
  const StageState& stage = state_.stage(id);
  size_t position = stage.order.size();
  while (position > first) {
    const ForKind kind = KindOf(id, position - 1);
    const bool reduce = stage.loops[stage.order[position - 1]].reduce;
    const bool single = bounds_.stages[id].extent[stage.order[position - 1]] == 1;
    if (!reduce && !single && kind != ForKind::kUnroll && kind != ForKind::kVectorize) break;
    --position;
  }
  return position;
}

// Whether the stage comes to its elements in loops that are not unrolled before it reduces: they are not all registers.
bool NestBuilder::InSerialLoops(int id, size_t first) const {
  const StageState& stage = state_.stage(id);
  for (size_t p = 0; p < first; ++p)
    if (bounds_.stages[id].extent[stage.order[p]] > 1 && KindOf(id, p) == ForKind::kSerial) return true;
  return false;
}

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
  const Expr index = StoreIndex(id);
  bool unsafe = false;
  const Expr value = LowerExpr(id, stage.op.body, &unsafe);
  const std::vector<Stmt> shuffles = std::exchange(shuffles_, {});
  const Guards guards = GuardsOf(id);
  std::vector<Expr> update_guards = guards.spatial;
  if (unsafe) update_guards.insert(update_guards.end(), guards.domain.begin(), guards.domain.end());
  if (unsafe || !PaddingIsHarmless(id))
    update_guards.insert(update_guards.end(), guards.reduce.begin(), guards.reduce.end());
  const std::vector<Expr>& stored = guards.spatial;
  const size_t held = RegisterPosition(id, first);
  const bool carried = stage.carry.is_carried() && stage.carry.target != id;
  const bool carrier = stage.carry.is_carried_by(id);
  const bool promote = carried || ((held > first || root || IsOfBlock(stage.memory) || InSerialLoops(id, first)) &&
                                   HasReduction(id, held));
  const Expr growth = GrowthOf(id);
  int buffer = id;
  Expr place = index;
  if (promote) {
    buffer = (*next_buffer_)++;
    int64_t elements = 1;
    place = IntImm(0);
    for (size_t p = held; p < stage.order.size(); ++p) {
      if (stage.loops[stage.order[p]].reduce) continue;
      const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
      if (extent > 1) place = Add(Mul(place, IntImm(extent)), context_[id].leaf[p]);
      elements *= extent;
    }
    place = analyzer_.Simplify(place);
    temporaries_.push_back({buffer, Identifier(stage.op.name) + "_sum", stage.op.dtype, Scope::kLocal, elements, true,
                            target_.is_gpu() ? 16 : 64});
  }
  auto update = [&] {
    const Expr old = Load(buffer, stage.op.dtype, {place});
    return WithShuffles(id, shuffles, update_guards.empty(),
                        MakeIf(And(update_guards), MakeStore(buffer, place, Combine(stage.op.combiner, old, value))));
  };
  auto copy = [&](bool in) {
    return SpatialNest(id, held, [&](const VarMap& fresh) {
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
    if (stage.loops[stage.order[p]].reduce) begun.push_back(Eq(context_[id].leaf[p], IntImm(0)));
  }
  // Registers begin with the identity, and memory is written when the sum is done; it never holds the identity.
  auto begin = [&]() -> Stmt {
    if (carried) return copy(true);
    const Stmt zero = SpatialNest(id, held, [&](const VarMap& fresh) {
      return MakeStore(buffer, Substitute(place, fresh), IdentityOf(stage.op.combiner, stage.op.dtype));
    });
    if (begun.empty()) return zero;
    return MakeSeq({MakeIf(And(begun), zero), MakeIf(Not(And(begun)), copy(true))});
  };
  // The sums of the terms before this step, relative to the maximum of this step: where it grew, as far as a thread
  // knows.
  auto rescale = [&]() -> Stmt {
    if (!growth) return nullptr;
    const Stmt all = SpatialNest(id, held, [&](const VarMap& fresh) {
      const Expr inside = Substitute(place, fresh);
      return MakeStore(buffer, inside, Mul(Load(buffer, stage.op.dtype, {inside}), Substitute(growth, fresh)));
    });
    return MakeIf(MayGrow(stage.carry.maximum), all);
  };
  const size_t step =
      static_cast<size_t>(std::find(stage.order.begin(), stage.order.end(), stage.carry.loop) - stage.order.begin());
  if (carrier && ((!promote && stage.memory != Memory::kLocal) || held > step || !begun.empty())) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("stage ", stage.op.name, ": a reduction that carries others has its own sums in registers"));
    return nullptr;
  }
  const auto loops_of_reduction = [&](size_t end, const std::function<Stmt()>& inner) {
    if (!carrier) return EmitLoops(id, held, end, inner);
    const Stmt start = BeginCarried(id);
    return MakeSeq({start, EmitLoops(id, held, step + 1, [&] {
                      return MakeSeq({rescale(), EmitLoops(id, step + 1, end, inner)});
                    })});
  };
  auto reduce = [&]() -> Stmt {
    Stmt loops;
    if (OnTensorCores(id)) {
      if (root || stage.memory != Memory::kLocal || !update_guards.empty() || held + 3 > stage.order.size()) {
        status_ = absl::InvalidArgumentError(absl::StrCat(
            "stage ", stage.op.name, ": a product on tensor cores has its sums in registers and no predicates"));
        return nullptr;
      }
      size_t tiles = stage.order.size() - 3;
      while (tiles > held && !stage.loops[stage.order[tiles - 1]].reduce) --tiles;
      loops = loops_of_reduction(tiles, [&] {
        return OnWarpgroups(id) ? EmitGroupProducts(id, tiles, buffer, place) : EmitProducts(id, tiles, buffer, place);
      });
    } else {
      loops = loops_of_reduction(stage.order.size(), update);
    }
    return promote ? MakeSeq({begin(), loops, copy(false)}) : loops;
  };
  auto rest = [&]() -> Stmt {
    if (promote) return WithGrowth(id, first, index, stored, EmitLoops(id, first, held, reduce));
    const Expr identity = IdentityOf(stage.op.combiner, stage.op.dtype);
    Stmt init = SpatialNest(id, first, [&](const VarMap& fresh) {
      std::vector<Expr> conditions;
      for (const Expr& guard : stored) conditions.push_back(Substitute(guard, fresh));
      return MakeIf(And(conditions), MakeStore(id, Substitute(index, fresh), identity));
    });
    return WithGrowth(id, first, index, stored, MakeSeq({init, EmitLoops(id, first, held, reduce)}));
  };
  return EmitLoops(id, 0, first, rest);
}

bool NestBuilder::HasReduction(int id, size_t from) const {
  const StageState& stage = state_.stage(id);
  for (size_t p = from; p < stage.order.size(); ++p)
    if (stage.loops[stage.order[p]].reduce && bounds_.stages[id].extent[stage.order[p]] > 1) return true;
  return false;
}

// Of the blocks of a cluster, or of the sets of threads where there is none. Each block begins with its own share, so
// that no two ask the same block at once: the order of the sum is that of the ranks, from a start that depends on the
// element alone.
Expr NestBuilder::SumOfParts(int buffer, DType dtype, const Expr& index) {
  Expr sum;
  const auto add = [&](std::vector<Expr> place) {
    const Expr part = Load(buffer, dtype, std::move(place));
    sum = sum ? Combine(state_.stage(split_.reduction).op.combiner, sum, part) : part;
  };
  for (int64_t i = 0; i < split_.blocks && split_.blocks > 1; ++i)
    add({index, analyzer_.Simplify(FloorMod(Add(rank_, IntImm(i)), split_.blocks))});
  for (int64_t i = 0; i < split_.thread_sets && split_.blocks == 1; ++i)
    add({analyzer_.Simplify(Add(index, IntImm(i * bounds_.stages[buffer].slot_stride())))});
  return sum;
}

// Before other blocks read a tile: the results of the block's sets of threads become one, in the place of the first, by
// vectors.
Stmt NestBuilder::SumOfThreadSets() {
  if (split_.thread_sets == 1) return nullptr;
  constexpr int64_t kLanes = 4;
  const DType dtype = state_.stage(split_.tile).op.dtype;
  const int64_t stride = bounds_.stages[split_.tile].slot_stride(), vectors = stride / kLanes;
  const int64_t rounds = (vectors + threads_ - 1) / threads_;
  const Expr thread = MakeVar("thread"), round = MakeVar("round"), lane = MakeVar("lane");
  for (const auto& [var, extent] : {std::pair(thread, threads_), {round, rounds}, {lane, kLanes}})
    analyzer_.Bind(var, extent);
  const Expr vector = Add(Mul(round, IntImm(threads_)), thread);
  const Expr index = analyzer_.Simplify(Add(Mul(vector, IntImm(kLanes)), lane));
  const Combiner combiner = state_.stage(split_.reduction).op.combiner;
  Expr others;
  for (int64_t set = 1; set < split_.thread_sets; ++set) {
    const Expr part = Load(split_.tile, dtype, {Add(index, IntImm(set * stride))});
    others = others ? Combine(combiner, others, part) : part;
  }
  const Expr sum = Combine(combiner, Load(split_.tile, dtype, {index}), others);
  Stmt work = MakeFor(ForKind::kVectorize, lane, kLanes, MakeStore(split_.tile, index, sum));
  if (rounds * threads_ > vectors) work = MakeIf(analyzer_.Simplify(Lt(vector, IntImm(vectors))), work);
  work = MakeFor(ForKind::kThreadX, thread, threads_, MakeFor(ForKind::kSerial, round, rounds, work));
  return MakeSeq({MakeBarrier(), work});
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
      status_ = absl::InvalidArgumentError(
          absl::StrCat("stage ", stage.op.name,
                       ": a cross-thread reduction has its spatial loops outside and its thread loop innermost"));
      return nullptr;
    }
  }
  const int64_t width = bounds_.stages[id].extent[stage.order[last]];
  const DType dtype = stage.op.dtype;
  const int part = (*next_buffer_)++, tree = (*next_buffer_)++;
  temporaries_.push_back({part, absl::StrCat("part", part), dtype, Scope::kLocal, 1, true, 0});
  temporaries_.push_back({tree, absl::StrCat("tree", tree), dtype, Scope::kShared, width, true, 0});
  bool unsafe = false;
  const Expr value = LowerExpr(id, stage.op.body, &unsafe);
  const Guards guards = GuardsOf(id);
  std::vector<Expr> conditions = guards.spatial;
  conditions.insert(conditions.end(), guards.reduce.begin(), guards.reduce.end());
  if (unsafe) conditions.insert(conditions.end(), guards.domain.begin(), guards.domain.end());
  const Expr zero = IntImm(0), thread = context_[id].leaf[last];
  const Expr part_value = Load(part, dtype, {zero});

  Stmt share = MakeIf(And(conditions), MakeStore(part, zero, Combine(stage.op.combiner, part_value, value)));
  for (size_t p = last; p-- > first;) share = Loop(id, p, share);
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
  Stmt result = MakeStore(id, StoreIndex(id), Load(tree, dtype, {zero}));
  std::vector<Expr> store_guards = guards.spatial;
  if (root) {
    result = MakeFor(ForKind::kThreadX, thread, width, MakeIf(Eq(thread, zero), result));
  }
  result = MakeIf(And(store_guards), result);
  Stmt work = MakeFor(ForKind::kThreadX, thread, width, MakeSeq(steps));
  if (width < threads_) {
    work = MakeFor(ForKind::kThreadX, thread, threads_, MakeIf(Lt(thread, IntImm(width)), MakeSeq(steps)));
    for (Stmt& s : meet)
      if (s->kind == StmtKind::kFor) s = MakeFor(ForKind::kThreadX, thread, threads_, s->body[0]);
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
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "stage ", stage.op.name, ": a reduction across the lanes of a vector has its spatial loops outside"));
    return nullptr;
  }
  const int64_t width = bounds_.stages[id].extent[stage.order[last]];
  const DType dtype = stage.op.dtype;
  const int part = (*next_buffer_)++, tree = (*next_buffer_)++;
  temporaries_.push_back({part, absl::StrCat("part", part), dtype, Scope::kLocal, width, true, 64});
  temporaries_.push_back({tree, absl::StrCat("tree", tree), dtype, Scope::kLocal, width, true, 64});
  bool unsafe = false;
  const Expr value = LowerExpr(id, stage.op.body, &unsafe);
  const Guards guards = GuardsOf(id);
  std::vector<Expr> conditions = guards.spatial;
  conditions.insert(conditions.end(), guards.reduce.begin(), guards.reduce.end());
  if (unsafe) conditions.insert(conditions.end(), guards.domain.begin(), guards.domain.end());
  const auto over = [&](int64_t lanes, const std::function<Stmt(const Expr&)>& make) {
    if (lanes == 1) return make(IntImm(0));
    const Expr lane = MakeVar("lane");
    analyzer_.Bind(lane, lanes);
    return MakeFor(ForKind::kVectorize, lane, lanes, make(lane));
  };
  const Expr lane = context_[id].leaf[last];
  Stmt share =
      MakeIf(And(conditions), MakeStore(part, lane, Combine(stage.op.combiner, Load(part, dtype, {lane}), value)));
  share = MakeFor(ForKind::kVectorize, lane, width, share);
  for (size_t p = last; p-- > first;) share = Loop(id, p, share);
  std::vector<Stmt> steps{
      over(width, [&](const Expr& l) { return MakeStore(part, l, IdentityOf(stage.op.combiner, dtype)); }), share,
      over(width, [&](const Expr& l) { return MakeStore(tree, l, Load(part, dtype, {l})); })};
  for (int64_t left = width; left > 1; left -= left / 2) {
    const Expr far = IntImm(left - left / 2);
    steps.push_back(over(left / 2, [&](const Expr& l) {
      return MakeStore(tree, l, Combine(stage.op.combiner, Load(tree, dtype, {l}), Load(tree, dtype, {Add(l, far)})));
    }));
  }
  steps.push_back(MakeIf(And(guards.spatial), MakeStore(id, StoreIndex(id), Load(tree, dtype, {IntImm(0)}))));
  const Stmt inner = MakeSeq(steps);
  return EmitLoops(id, 0, first, [&] { return inner; });
}

}  // namespace diapason
