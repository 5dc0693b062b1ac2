#include "compiler/lower/bulk_copies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/lower/loop_values.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

bool LiesSideBySide(const Region& region) {
  if (region.full) return true;
  bool tiles = region.levels.size() == 1 && region.levels[0].unit == 1 && region.constant_min >= 0 &&
               region.constant_min % region.extent == 0;
  for (const Term& t : region.outer) tiles &= t.coefficient > 0 && t.coefficient % region.extent == 0;
  return tiles;
}

}  // namespace

absl::Status CheckBulkCopy(const KernelContext& kernel, int copy) {
  const StageState& stage = kernel.state.stage(copy);
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", stage.op.name, ": copies of a tile at a time take ", what));
  };
  const std::vector<Region>& regions = kernel.bounds.stages[copy].region;
  if (!std::all_of(regions.begin(), regions.end(), LiesSideBySide)) return refuse("tiles side by side");
  const TensorIntrinsic* products =
      FindTensorIntrinsic(static_cast<int>(kernel.state.stage(stage.attach_stage).tensor));
  if (stage.core_matrices || (products != nullptr && products->groups))
    return refuse("products of threads and of warps");
  return kernel.RunsOnce(copy) ? absl::OkStatus() : refuse("one pipeline that runs once");
}

Expr BulkCopies::Barrier(int copy, const Expr& slot) {
  const int arrivals = nest_.buffers.arrivals(copy);
  return arrivals < 0 ? nullptr : Load(arrivals, DType::kInt64, {nest_.analyzer.Simplify(slot)});
}

// Of the tile at which the loops stand, into a slot.
Stmt BulkCopies::CopyInto(int copy, const Expr& slot) {
  const KernelContext& kernel = nest_.kernel;
  const StageBounds& b = kernel.bounds.stages[copy];
  const int from = kernel.state.stage(copy).op.body->buffer;
  Expr tile = IntImm(0);
  for (size_t d = 0; d < b.region.size(); ++d) {
    const Region& region = b.region[d];
    const int64_t tiles = kernel.bounds.stages[from].buffer[d] / b.buffer[d];
    tile = Mul(tile, IntImm(tiles));
    if (!region.full)
      tile = Add(tile, Add(AtomSum(nest_, region.outer, region.extent), IntImm(region.constant_min / region.extent)));
  }
  const auto place = [&](const Expr& number) { return nest_.analyzer.Simplify(Mul(number, IntImm(b.slot_stride()))); };
  const DType dtype = kernel.state.stage(copy).op.dtype;
  return MakeBulkCopy(copy, place(slot), b.slot_stride(), Load(from, dtype, {place(tile)}), Barrier(copy, slot));
}

// Of the threads of a block, on cuda: the one that asks for a copy.
Stmt BulkCopies::ByOneThread(int copy, Stmt stmt) const {
  if (nest_.buffers.arrivals(copy) < 0) return stmt;
  const KernelContext& kernel = nest_.kernel;
  const State& state = kernel.state;
  for (int at = copy; state.stage(at).attach == StageState::Attach::kAt; at = state.stage(at).attach_stage) {
    const int up = state.stage(at).attach_stage;
    const StageState& stage = state.stage(up);
    for (int p = 0; p <= kernel.bounds.stages[at].attach_position; ++p)
      if (stage.loops[stage.order[p]].annotation == Annotation::kThreadX) {
        const Expr first = Eq(nest_.stages[up].leaf[p], IntImm(0));
        const bool of_sets = up == kernel.split.tile && kernel.split.thread_sets > 1;
        return MakeIf(of_sets ? And(first, Eq(nest_.thread_set, IntImm(0))) : first, stmt);
      }
  }
  return stmt;  // of one
}

Stmt BulkCopies::AskOnce(int id, size_t position) {
  std::vector<Stmt> all;
  const Expr zero = IntImm(0);
  for (int copy : nest_.kernel.BulkCopiesAt(id, position)) {
    const Expr barrier = Barrier(copy, zero);
    if (nest_.kernel.bounds.stages[copy].slots > 1)
      nest_.Refuse(absl::InvalidArgumentError(
          absl::StrCat("stage ", nest_.kernel.state.stage(copy).op.name,
                       ": copies of a tile at a time have other shared copies beside them")));
    const Stmt init = barrier ? MakeMbarrierInit(barrier, 1) : nullptr;
    all.push_back(ByOneThread(copy, MakeSeq({init, CopyInto(copy, zero)})));
  }
  return MakeSeq(all);
}

Stmt BulkCopies::AwaitOnce(int id, size_t position) {
  std::vector<Stmt> all;
  for (int copy : nest_.kernel.BulkCopiesAt(id, position))
    if (const Expr barrier = Barrier(copy, IntImm(0))) all.push_back(MakeMbarrierWait(barrier, IntImm(0)));
  return MakeSeq(all);
}

// Before the first step as many tiles are asked for as have slots. Behind the barrier of step t everyone has left those
// of iteration t - slots, and so that of iteration t - slots + (slots of the copy) may come there.
BulkCopies::OfPipeline BulkCopies::Ask(const SoftwarePipeline& p) {
  std::vector<Stmt> start, refill;
  for (int copy : nest_.kernel.BulkCopiesAt(p.id, p.last)) {
    const int64_t held = nest_.kernel.bounds.stages[copy].slots;
    const Expr ahead = MakeVar("ahead");
    nest_.analyzer.Bind(ahead, held);
    const Stmt first = MakeFor(ForKind::kSerial, ahead, held, p.at(ahead, CopyInto(copy, ahead)), 1);
    const Stmt init = nest_.buffers.arrivals(copy) < 0 ? nullptr : MakeMbarrierInit(Barrier(copy, IntImm(0)), held);
    start.push_back(ByOneThread(copy, MakeSeq({init, first})));
    if (held == p.iterations) continue;
    const Expr left = Max(Sub(p.step, IntImm(p.slots)), IntImm(0)),
               next = Min(Add(left, IntImm(held)), IntImm(p.iterations - 1));
    Stmt again = ByOneThread(copy, p.at(next, CopyInto(copy, FloorMod(left, held))));
    refill.push_back(
        MakeIf(And(Le(IntImm(p.slots), p.step), Lt(p.step, IntImm(p.iterations + p.slots - held))), again));
  }
  return {MakeSeq(start), MakeSeq(refill)};
}

Stmt BulkCopies::Await(int id, size_t last, const Expr& iteration, Stmt work) {
  for (int copy : nest_.kernel.BulkCopiesAt(id, last)) {
    const int64_t held = nest_.kernel.bounds.stages[copy].slots;
    const Expr& slot = nest_.stages[copy].read_slot;
    if (const Expr barrier = Barrier(copy, slot))
      work =
          MakeSeq({MakeMbarrierWait(barrier, nest_.analyzer.Simplify(FloorMod(FloorDiv(iteration, held), 2))), work});
    work = MakeLet(slot, nest_.analyzer.Simplify(FloorMod(iteration, held)), work);
  }
  return work;
}

}  // namespace diapason
