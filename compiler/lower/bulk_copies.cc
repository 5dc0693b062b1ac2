// Copies of constants that are made a whole tile at a time (StepKind::kBulkCopy). The constant lies in global memory as
// images of the copy's buffer, so that a tile is one run of bytes: on cuda one thread asks for it, it arrives at a
// barrier of its slot (mbarrier), and each thread waits there before it reads; on other targets the threads copy the
// run together.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/nest.h"

namespace diapason {

// Its tiles lie side by side in the constant, and its pipeline runs once.
absl::Status NestBuilder::CheckBulkCopy(int copy) {
  const StageState& stage = state_.stage(copy);
  const StageBounds& b = bounds_.stages[copy];
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", stage.op.name, ": copies of a tile at a time take ", what));
  };
  for (const Region& region : b.region) {
    if (region.full) continue;
    bool tiles = region.levels.size() == 1 && region.levels[0].unit == 1 && region.constant_min >= 0 &&
                 region.constant_min % region.extent == 0;
    for (const Term& t : region.outer) tiles &= t.coefficient > 0 && t.coefficient % region.extent == 0;
    if (!tiles) return refuse("tiles side by side");
  }
  const TensorIntrinsic* products = FindTensorIntrinsic(static_cast<int>(state_.stage(stage.attach_stage).tensor));
  if (stage.core_matrices || (products != nullptr && products->groups))
    return refuse("products of threads and of warps");
  const int start =
      b.slots > 1 ? skeleton_.PipelineStart(stage.attach_stage, b.attach_position) : b.attach_position + 1;
  bool once = true;
  for (int at = copy, until = start; state_.stage(at).attach == StageState::Attach::kAt;) {
    const int up = state_.stage(at).attach_stage;
    for (int p = 0; p < until; ++p) {
      const int loop = state_.stage(up).order[p];
      const Annotation annotation = state_.stage(up).loops[loop].annotation;
      once &= bounds_.stages[up].extent[loop] == 1 || annotation == Annotation::kBlockX ||
              annotation == Annotation::kThreadX || annotation == Annotation::kCluster;
    }
    at = up;
    until = bounds_.stages[at].attach_position + 1;
  }
  return once ? absl::OkStatus() : refuse("one pipeline that runs once");
}

Expr NestBuilder::BulkBarrier(int copy, const Expr& slot) {
  return nest_.buffers.arrivals(copy) < 0
             ? nullptr
             : Load(nest_.buffers.arrivals(copy), DType::kInt64, {analyzer_.Simplify(slot)});
}

// Of the tile at which the loops stand, into a slot.
Stmt NestBuilder::BulkCopyOf(int copy, const Expr& slot) {
  const StageBounds& b = bounds_.stages[copy];
  const int from = state_.stage(copy).op.body->buffer;
  Expr tile = IntImm(0);
  for (size_t d = 0; d < b.region.size(); ++d) {
    const Region& region = b.region[d];
    const int64_t tiles = bounds_.stages[from].buffer[d] / b.buffer[d];
    tile = Mul(tile, IntImm(tiles));
    if (!region.full)
      tile = Add(tile, Add(AtomSum(nest_, region.outer, region.extent), IntImm(region.constant_min / region.extent)));
  }
  const auto place = [&](const Expr& number) { return analyzer_.Simplify(Mul(number, IntImm(b.slot_stride()))); };
  const DType dtype = state_.stage(copy).op.dtype;
  return MakeBulkCopy(copy, place(slot), b.slot_stride(), Load(from, dtype, {place(tile)}), BulkBarrier(copy, slot));
}

// Of the threads of a block, on cuda: the one that asks for a copy.
Stmt NestBuilder::ByOneThread(int copy, Stmt stmt) const {
  if (nest_.buffers.arrivals(copy) < 0) return stmt;
  for (int at = copy; state_.stage(at).attach == StageState::Attach::kAt; at = state_.stage(at).attach_stage) {
    const int up = state_.stage(at).attach_stage;
    const StageState& stage = state_.stage(up);
    for (int p = 0; p <= bounds_.stages[at].attach_position; ++p)
      if (stage.loops[stage.order[p]].annotation == Annotation::kThreadX) {
        const Expr first = Eq(nest_.stages[up].leaf[p], IntImm(0));
        return MakeIf(up == split_.tile && split_.thread_sets > 1 ? And(first, Eq(nest_.thread_set, IntImm(0))) : first,
                      stmt);
      }
  }
  return stmt;  // of one
}

// Copies at a loop without a pipeline: of one tile. `wait` is behind a barrier, for those that were asked for before
// it.
Stmt NestBuilder::AttachedBulkOnce(int id, size_t position, bool wait) {
  std::vector<Stmt> all;
  const Expr zero = IntImm(0);
  for (int copy : kernel_.BulkCopiesAt(id, position)) {
    const Expr barrier = BulkBarrier(copy, zero);
    if (bounds_.stages[copy].slots > 1)
      nest_.Refuse(absl::InvalidArgumentError(absl::StrCat(
          "stage ", state_.stage(copy).op.name, ": copies of a tile at a time have other shared copies beside them")));
    if (!wait) {
      const Stmt init = barrier ? MakeMbarrierInit(barrier, 1) : nullptr;
      all.push_back(ByOneThread(copy, MakeSeq({init, BulkCopyOf(copy, zero)})));
    } else if (barrier) {
      all.push_back(MakeMbarrierWait(barrier, zero));
    }
  }
  return MakeSeq(all);
}

// Before the first step as many tiles are asked for as have slots. Behind the barrier of step t everyone has left those
// of iteration t - slots, and so that of iteration t - slots + (slots of the copy) may come there.
NestBuilder::BulkPipeline NestBuilder::EmitBulkPipeline(const Pipeline& p) {
  std::vector<Stmt> start, refill;
  for (int copy : kernel_.BulkCopiesAt(p.id, p.last)) {
    const int64_t held = bounds_.stages[copy].slots;
    const Expr ahead = MakeVar("ahead");
    analyzer_.Bind(ahead, held);
    const Stmt first = MakeFor(ForKind::kSerial, ahead, held, p.at(ahead, BulkCopyOf(copy, ahead)), 1);
    const Stmt init = nest_.buffers.arrivals(copy) < 0 ? nullptr : MakeMbarrierInit(BulkBarrier(copy, IntImm(0)), held);
    start.push_back(ByOneThread(copy, MakeSeq({init, first})));
    if (held == p.iterations) continue;
    const Expr left = Max(Sub(p.step, IntImm(p.slots)), IntImm(0)),
               next = Min(Add(left, IntImm(held)), IntImm(p.iterations - 1));
    Stmt again = ByOneThread(copy, p.at(next, BulkCopyOf(copy, FloorMod(left, held))));
    refill.push_back(
        MakeIf(And(Le(IntImm(p.slots), p.step), Lt(p.step, IntImm(p.iterations + p.slots - held))), again));
  }
  return {MakeSeq(start), MakeSeq(refill)};
}

// What reads the tiles of an iteration, behind their arrival.
Stmt NestBuilder::HoldBulk(int id, size_t last, const Expr& iteration, Stmt work) {
  for (int copy : kernel_.BulkCopiesAt(id, last)) {
    const int64_t held = bounds_.stages[copy].slots;
    const Expr& slot = nest_.stages[copy].read_slot;
    if (const Expr barrier = BulkBarrier(copy, slot))
      work = MakeSeq({MakeMbarrierWait(barrier, analyzer_.Simplify(FloorMod(FloorDiv(iteration, held), 2))), work});
    work = MakeLet(slot, analyzer_.Simplify(FloorMod(iteration, held)), work);
  }
  return work;
}

}  // namespace diapason
