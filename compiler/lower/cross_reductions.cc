#include "compiler/lower/cross_reductions.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/lower/guards.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

// Of one term: where it is, and where the result is stored.
struct Shares {
  Expr value;
  std::vector<Expr> conditions, store_guards;
};

Shares LowerShares(NestParts& parts, int id) {
  bool unsafe = false;
  Shares shares;
  shares.value = parts.expressions.Lower(id, parts.state.kernel.state.stage(id).op.body, &unsafe);
  const Guards guards = GuardsOf(parts.state, id);
  shares.conditions = guards.spatial;
  shares.conditions.insert(shares.conditions.end(), guards.reduce.begin(), guards.reduce.end());
  if (unsafe) shares.conditions.insert(shares.conditions.end(), guards.domain.begin(), guards.domain.end());
  shares.store_guards = guards.spatial;
  return shares;
}

// Of a share of each thread or lane, or of the tree in which they meet.
int DeclareShares(KernelBuffers& buffers, const char* name, BufferDecl decl) {
  decl.id = buffers.NewId();
  decl.name = absl::StrCat(name, decl.id);
  decl.written = true;
  const int id = decl.id;
  buffers.Declare(std::move(decl));
  return id;
}

// The shares in `tree`, one of each thread, become one in its first element.
std::vector<Stmt> MeetInTree(NestParts& parts, int id, int tree, const Expr& thread, int64_t width) {
  const StageState& stage = parts.state.kernel.state.stage(id);
  const DType dtype = stage.op.dtype;
  int64_t half = 1;
  while (half * 2 < width) half *= 2;
  std::vector<Stmt> meet;
  for (; half >= 1 && width > 1; half /= 2) {
    Expr mine = Load(tree, dtype, {thread}), other = Load(tree, dtype, {Add(thread, IntImm(half))});
    std::vector<Expr> active{Lt(thread, IntImm(half))};
    if (!parts.state.analyzer.Proves(Lt(IntImm(2 * half - 1), IntImm(width))))
      active.push_back(Lt(Add(thread, IntImm(half)), IntImm(width)));
    meet.push_back(MakeBarrier());
    meet.push_back(MakeFor(ForKind::kThreadX, thread, width,
                           MakeIf(And(active), MakeStore(tree, thread, Combine(stage.op.combiner, mine, other)))));
  }
  meet.push_back(MakeBarrier());
  return meet;
}

// Whether warps add up their threads' shares themselves: whole ones, where lanes can ask each other.
bool MeetsInWarps(const KernelContext& kernel, int64_t width) {
  return kernel.target.kind == TargetKind::kCuda && width % kLanesOfWarp == 0;
}

// What a thread does with its share, in `part`: the lanes of its warp make one of theirs, which the first of them
// leaves in `tree`.
Stmt MeetInWarp(NestParts& parts, int id, int part, int tree, const Expr& thread) {
  const StageState& stage = parts.state.kernel.state.stage(id);
  const DType dtype = stage.op.dtype;
  const int other = DeclareShares(parts.state.buffers, "shuffled", {-1, "", dtype, Scope::kLocal, 1});
  const Expr zero = IntImm(0), mine = Load(part, dtype, {zero});
  std::vector<Stmt> meet;
  for (int64_t half = kLanesOfWarp / 2; half >= 1; half /= 2) {
    meet.push_back(MakeShuffle(other, zero, mine, FloorMod(Add(thread, IntImm(half)), kLanesOfWarp)));
    meet.push_back(MakeStore(part, zero, Combine(stage.op.combiner, mine, Load(other, dtype, {zero}))));
  }
  meet.push_back(
      MakeIf(Eq(FloorMod(thread, kLanesOfWarp), zero), MakeStore(tree, FloorDiv(thread, kLanesOfWarp), mine)));
  return MakeSeq(std::move(meet));
}

// Of what so many warps left in `tree`, the result.
Expr OfAllWarps(const StageState& stage, int tree, int64_t warps) {
  Expr all = Load(tree, stage.op.dtype, {IntImm(0)});
  for (int64_t warp = 1; warp < warps; ++warp)
    all = Combine(stage.op.combiner, all, Load(tree, stage.op.dtype, {IntImm(warp)}));
  return all;
}

}  // namespace

bool IsAcrossThreads(const KernelContext& kernel, int id) {
  const StageState& stage = kernel.state.stage(id);
  for (int loop : stage.order)
    if (stage.loops[loop].annotation == Annotation::kThreadX && stage.loops[loop].reduce) return true;
  return false;
}

bool IsAcrossLanes(const KernelContext& kernel, int id) {
  const StageState& stage = kernel.state.stage(id);
  const struct Loop& innermost = stage.loops[stage.order.back()];
  return innermost.annotation == Annotation::kVectorize && innermost.reduce &&
         kernel.extent(id, stage.order.size() - 1) > 1;
}

Stmt EmitAcrossThreads(NestParts& parts, NestEmitter& emitter, int id) {
  NestState& nest = parts.state;
  const StageState& stage = nest.kernel.state.stage(id);
  const size_t first = parts.loops.FirstReduction(id), last = stage.order.size() - 1;
  for (size_t p = first; p <= last; ++p) {
    const bool thread = stage.loops[stage.order[p]].annotation == Annotation::kThreadX;
    if (!stage.loops[stage.order[p]].reduce || thread != (p == last)) {
      nest.Refuse(absl::InvalidArgumentError(
          absl::StrCat("stage ", stage.op.name,
                       ": a cross-thread reduction has its spatial loops outside and its thread loop innermost")));
      return nullptr;
    }
  }
  const int64_t width = nest.kernel.extent(id, last), threads = nest.kernel.threads;
  const DType dtype = stage.op.dtype;
  const int part = DeclareShares(nest.buffers, "part", {-1, "", dtype, Scope::kLocal, 1});
  const int tree = DeclareShares(nest.buffers, "tree", {-1, "", dtype, Scope::kShared, width});
  const Shares shares = LowerShares(parts, id);
  const Expr zero = IntImm(0), thread = nest.stages[id].leaf[last];
  const Expr part_value = Load(part, dtype, {zero});

  Stmt share =
      MakeIf(And(shares.conditions), MakeStore(part, zero, Combine(stage.op.combiner, part_value, shares.value)));
  for (size_t p = last; p-- > first;) share = parts.loops.Around(id, p, share);
  const bool by_warps = MeetsInWarps(nest.kernel, width);
  const std::vector<Stmt> steps{
      MakeStore(part, zero, IdentityOf(stage.op.combiner, dtype)), share,
      by_warps ? MeetInWarp(parts, id, part, tree, thread) : MakeStore(tree, thread, part_value)};
  std::vector<Stmt> meet = by_warps ? std::vector<Stmt>{MakeBarrier()} : MeetInTree(parts, id, tree, thread, width);
  Stmt result =
      MakeStore(id, parts.expressions.StoreIndex(id), OfAllWarps(stage, tree, by_warps ? width / kLanesOfWarp : 1));
  if (stage.attach == StageState::Attach::kRoot)
    result = MakeFor(ForKind::kThreadX, thread, width, MakeIf(Eq(thread, zero), result));
  result = MakeIf(And(shares.store_guards), result);
  Stmt work = MakeFor(ForKind::kThreadX, thread, width, MakeSeq(steps));
  if (width < threads) {
    work = MakeFor(ForKind::kThreadX, thread, threads, MakeIf(Lt(thread, IntImm(width)), MakeSeq(steps)));
    for (Stmt& s : meet)
      if (s->kind == StmtKind::kFor) s = MakeFor(ForKind::kThreadX, thread, threads, s->body[0]);
  }
  std::vector<Stmt> all{work};
  all.insert(all.end(), meet.begin(), meet.end());
  all.push_back(result);
  all.push_back(MakeBarrier());
  const Stmt inner = MakeSeq(all);
  return emitter.EmitLoops(id, 0, first, [&] { return inner; });
}

Stmt EmitAcrossLanes(NestParts& parts, NestEmitter& emitter, int id) {
  NestState& nest = parts.state;
  const StageState& stage = nest.kernel.state.stage(id);
  const size_t first = parts.loops.FirstReduction(id), last = stage.order.size() - 1;
  for (size_t p = first; p <= last; ++p) {
    if (stage.loops[stage.order[p]].reduce) continue;
    nest.Refuse(absl::InvalidArgumentError(absl::StrCat(
        "stage ", stage.op.name, ": a reduction across the lanes of a vector has its spatial loops outside")));
    return nullptr;
  }
  const int64_t width = nest.kernel.extent(id, last);
  const DType dtype = stage.op.dtype;
  const BufferDecl vector{-1, "", dtype, Scope::kLocal, width, true, 64};
  const int part = DeclareShares(nest.buffers, "part", vector), tree = DeclareShares(nest.buffers, "tree", vector);
  const Shares shares = LowerShares(parts, id);
  const auto over = [&](int64_t lanes, const std::function<Stmt(const Expr&)>& make) {
    if (lanes == 1) return make(IntImm(0));
    const Expr lane = MakeVar("lane");
    nest.analyzer.Bind(lane, lanes);
    return MakeFor(ForKind::kVectorize, lane, lanes, make(lane));
  };
  const Expr lane = nest.stages[id].leaf[last];
  Stmt share = MakeIf(And(shares.conditions),
                      MakeStore(part, lane, Combine(stage.op.combiner, Load(part, dtype, {lane}), shares.value)));
  share = MakeFor(ForKind::kVectorize, lane, width, share);
  for (size_t p = last; p-- > first;) share = parts.loops.Around(id, p, share);
  std::vector<Stmt> steps{
      over(width, [&](const Expr& l) { return MakeStore(part, l, IdentityOf(stage.op.combiner, dtype)); }), share,
      over(width, [&](const Expr& l) { return MakeStore(tree, l, Load(part, dtype, {l})); })};
  for (int64_t left = width; left > 1; left -= left / 2) {
    const Expr far = IntImm(left - left / 2);
    steps.push_back(over(left / 2, [&](const Expr& l) {
      return MakeStore(tree, l, Combine(stage.op.combiner, Load(tree, dtype, {l}), Load(tree, dtype, {Add(l, far)})));
    }));
  }
  const Expr index = parts.expressions.StoreIndex(id);
  steps.push_back(MakeIf(And(shares.store_guards), MakeStore(id, index, Load(tree, dtype, {IntImm(0)}))));
  const Stmt inner = MakeSeq(steps);
  return emitter.EmitLoops(id, 0, first, [&] { return inner; });
}

}  // namespace diapason
