#include "compiler/lower/group_pipelines.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "compiler/lower/loop_values.h"
#include "compiler/lower/tensor_box_of_copy.h"

namespace diapason {
namespace {

// What stores zeros in place of all values where the condition does not hold: without branches, if the stores are
// copies by hardware. Tensor copies are not made then.
Stmt StoresIf(const Expr& condition, const Stmt& stmt) {
  if (!stmt) return stmt;
  StmtNode node = *stmt;
  if (node.kind == StmtKind::kTensorCopy) node.condition = node.condition ? And(node.condition, condition) : condition;
  if (node.kind == StmtKind::kStore) {
    const Expr value = node.value, zero = IdentityOf(Combiner::kSum, value->dtype);
    const bool guarded = value->kind == ExprKind::kSelect && Equal(value->args[2], zero);
    node.value =
        guarded ? Select(And(condition, value->args[0]), value->args[1], zero) : Select(condition, value, zero);
  }
  for (Stmt& child : node.body) child = StoresIf(condition, child);
  return std::make_shared<const StmtNode>(std::move(node));
}

}  // namespace

Stmt GroupPipelines::Emit(const SoftwarePipeline& p) {
  const int id = p.id;
  const size_t last = p.last;
  const int64_t slots = p.slots, iterations = p.iterations;
  const Expr& step = p.step;
  bool once = true;  // a step makes products once
  for (size_t l = last + 1; l < p.end; ++l) once &= nest_.kernel.extent(id, l) == 1;
  const StageState& stage = nest_.kernel.state.stage(id);
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  const bool rows_shared = nest_.kernel.state.reads_core_matrices(id);
  const bool in_turns =
      !rows_shared && !intrinsic.parts &&
      nest_.kernel.bounds.stages[id].extent[stage.tensor_k] >= 2 * intrinsic.depth();  // as many sets of registers
  const bool produced = HasProducer(nest_.kernel, id);
  const bool whole = FillsSlotsOnce(p) && !produced;
  const bool flying = once && ((slots > (produced ? 1 : 2) && (rows_shared || in_turns)) || (whole && rows_shared));
  // A producer keeps its own.
  const int64_t distance = produced ? 1 : whole ? iterations : slots - (flying ? 2 : 1);
  const Expr ahead = MakeVar("ahead");
  nest_.analyzer.Bind(ahead, distance);
  nest_.analyzer.Bind(step, iterations);
  auto copies = [&](const Expr& iteration) {
    Stmt body = p.at(Min(iteration, IntImm(iterations - 1)), attached_.EmitShared(id, last));
    return MakeLet(p.fill, nest_.analyzer.Simplify(FloorMod(iteration, slots)), body);
  };
  auto low = [&](const Expr& iteration) { return copies_.core_matrices.Finish(id, last, iteration, slots); };
  auto exists = [&](const Expr& iteration) { return nest_.analyzer.Simplify(Lt(iteration, IntImm(iterations))); };
  const bool by_threads = copies_.tensor.HasCopiesByThreads(p);
  auto commit = [&] { return by_threads ? MakeCommit() : nullptr; };
  auto wait = [&](int64_t unfinished) { return by_threads ? MakeWait(unfinished) : nullptr; };

  const Stmt first = MakeSeq(
      {copies_.tensor.Init(p), MakeFor(ForKind::kSerial, ahead, distance, MakeSeq({copies(ahead), commit()}), 1)});
  // Where nothing is copied over, and threads copy nothing, steps meet nowhere: a barrier shows that those where copies
  // arrive are initialised.
  const bool apart = whole && !by_threads;
  std::vector<Stmt> body{apart ? nullptr : MakeBarrier(), copies_.tensor.Await(p, step)};
  ++nest_.serial_depth;
  handover_.iteration = step;
  handover_.defer = once ? GroupHandover::Defer::kEnd : GroupHandover::Defer::kNothing;
  handover_.end = nullptr;
  handover_.in_turns = flying && in_turns;
  Stmt products = MakeSeq({attached_.EmitOwn(id, last), emitter_.EmitLoops(id, last + 1, p.end, p.inner)});
  const Stmt sums = std::exchange(handover_.end, nullptr);
  handover_.defer = GroupHandover::Defer::kNothing;
  handover_.in_turns = false;
  --nest_.serial_depth;
  auto in_use = [&](Stmt part) { return MakeLet(p.use, FloorMod(step, slots), p.at(step, part)); };
  body.push_back(in_use(products));
  if (produced) {
    const std::vector<int> all = copies_.tensor.CopiesOf(p);
    copies_.tensor.Produce(p);
    body[0] = nullptr;  // no barrier
    if (flying) {
      body.insert(body.end(), {MakeGroupSync(GroupSync::kWait, 1),
                               copies_.tensor.Leave(p, Sub(step, IntImm(1)), all, Le(IntImm(1), step))});
      return MakeSeq({MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1), sums});
    }
    body.insert(body.end(), {sums ? in_use(sums) : nullptr, copies_.tensor.Leave(p, step, all)});
    return MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1);
  }
  const Expr next = Add(step, IntImm(1)), later = Add(step, IntImm(distance));
  const Stmt start_copies = MakeSeq({whole ? nullptr : MakeIf(exists(later), copies(later)), commit()});
  const Stmt begin = MakeSeq({first, apart ? MakeBarrier() : wait(distance - 1), low(IntImm(0))});
  if (flying) {
    const Stmt copies_if = whole ? nullptr : StoresIf(exists(later), copies(later));
    body.insert(body.end(), {copies_if, commit(), wait(distance - 1), low(next), MakeGroupSync(GroupSync::kWait, 1)});
    return MakeSeq({begin, MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1), sums});
  }
  if (slots > 2 || whole) {
    body.insert(body.end(), {wait(distance - 2), MakeIf(exists(next), low(next)), start_copies});
  } else {
    body.insert(body.end(), {start_copies, wait(0), MakeIf(exists(next), low(next))});
  }
  body.push_back(sums ? in_use(sums) : nullptr);
  return MakeSeq({begin, MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1)});
}

bool GroupPipelines::FillsSlotsOnce(const SoftwarePipeline& p) const {
  const std::vector<int> copies = nest_.kernel.StagesAt(p.id, p.last);
  return p.slots >= p.iterations && std::all_of(copies.begin(), copies.end(), [this](int copy) {
           return nest_.kernel.bounds.stages[copy].slots == 1 || nest_.kernel.RunsOnce(copy);
         });
}

bool GroupPipelines::IsWhole(const SoftwarePipeline& p) const {
  return FillsSlotsOnce(p) && !copies_.tensor.HasCopiesByThreads(p);
}

GroupPipelines::Meeting GroupPipelines::MeetApart(const SoftwarePipeline& p, const Stmt& landed) {
  const int buffer = nest_.buffers.NewId();
  nest_.buffers.Declare({buffer, "steps_begun", DType::kInt64, Scope::kShared, 1, true, 16, false, true});
  const Expr barrier = Load(buffer, DType::kInt64, {IntImm(0)});
  return {.init = MakeIf(Eq(ThreadOf(nest_, p.id), IntImm(0)), MakeMbarrierInit(barrier, 1, nest_.kernel.threads)),
          .arrive = MakeSeq({landed, MakeMbarrierArrive(barrier)}),
          .await = MakeMbarrierWait(barrier, nest_.analyzer.Simplify(FloorMod(p.step, 2)))};
}

Stmt GroupPipelines::EmitMade(const std::vector<int>& made, Stmt behind, const Stmt& after) {
  handover_.behind = std::move(behind);
  handover_.after = after;
  const Stmt all = attached_.EmitInTurn(made, /*after_barrier=*/true);
  handover_.after = nullptr;
  if (std::exchange(handover_.behind, nullptr))
    nest_.Refuse(absl::InvalidArgumentError("a step of keys by warpgroups has products of its own"));
  return all;
}

// Of the copies that a producer brings, those that the products by rows read are left one step later than the others.
Stmt GroupPipelines::EmitCarriedAndProduced(const SoftwarePipeline& p, const std::vector<int>& made) {
  TensorCopies& copies = copies_.tensor;
  std::vector<int> first_read = copies.CopiesOf(p), later_read = first_read;
  std::erase_if(first_read, [&](int copy) { return nest_.kernel.ReadsAny(p.id, {copy}); });
  std::erase_if(later_read, [&](int copy) { return !nest_.kernel.ReadsAny(p.id, {copy}); });
  const Expr now = Add(p.step, IntImm(1)), zero = IntImm(0), last = IntImm(p.iterations - 1);
  nest_.analyzer.Bind(p.step, p.iterations - 1);
  const auto in_use = [&](const Expr& iteration, Stmt part) {
    return MakeLet(p.use, nest_.analyzer.Simplify(FloorMod(iteration, p.slots)), p.at(iteration, std::move(part)));
  };
  copies.Produce(p);
  ++nest_.serial_depth;
  const Stmt first = EmitMade(made, nullptr, copies.Leave(p, zero, first_read));
  handover_.defer = GroupHandover::Defer::kProducts;
  const Stmt rows = emitter_.EmitLoops(p.id, p.last + 1, p.end, p.inner);
  handover_.defer = GroupHandover::Defer::kNothing;
  const Stmt products = std::exchange(handover_.products, nullptr), end = std::exchange(handover_.end, nullptr);
  const Stmt next = EmitMade(made, in_use(p.step, products), copies.Leave(p, now, first_read));
  --nest_.serial_depth;
  const Stmt loop = MakeSeq({copies.Await(p, now, first_read), copies.Await(p, p.step, later_read),
                             in_use(now, MakeSeq({next, end, copies.Leave(p, p.step, later_read), rows}))});
  return MakeSeq({copies.Await(p, zero, first_read), in_use(zero, MakeSeq({first, rows})),
                  MakeFor(ForKind::kSerial, p.step, p.iterations - 1, loop, 1), copies.Await(p, last, later_read),
                  in_use(last, products), end});
}

Stmt GroupPipelines::EmitCarried(const SoftwarePipeline& p, const CarriedStep& carried) {
  if (HasProducer(nest_.kernel, p.id)) return EmitCarriedAndProduced(p, carried.made);
  const bool whole = IsWhole(p), apart = !whole && p.slots > 3;
  const int64_t distance = whole ? p.iterations : p.slots - (apart ? 3 : 2);
  const Expr ahead = MakeVar("ahead"), now = Add(p.step, IntImm(1));
  nest_.analyzer.Bind(ahead, distance);
  nest_.analyzer.Bind(p.step, p.iterations - 1);
  const bool by_threads = copies_.tensor.HasCopiesByThreads(p);
  const auto commit = [&] { return by_threads ? MakeCommit() : nullptr; };
  const Stmt landed = by_threads ? MakeSeq({MakeWait(distance - 1), MakeGroupSync(GroupSync::kPublish)}) : nullptr;
  const Meeting meeting = apart ? MeetApart(p, landed) : Meeting{};
  const auto copies = [&](const Expr& iteration) {
    const Expr exists = nest_.analyzer.Simplify(Lt(iteration, IntImm(p.iterations)));
    if (IsInt(exists, 0)) return Stmt();
    return MakeSeq({MakeIf(exists, carried.copies(iteration)), commit()});
  };
  const auto in_use = [&](const Expr& iteration, Stmt part) {
    return MakeLet(p.use, nest_.analyzer.Simplify(FloorMod(iteration, p.slots)), p.at(iteration, std::move(part)));
  };
  // Waits for the copies of a step.
  const auto together = [&](const Expr& iteration) {
    return MakeSeq({by_threads ? MakeWait(distance - 1) : nullptr,
                    copies_.core_matrices.Finish(p.id, p.last, iteration, p.slots), MakeBarrier()});
  };
  ++nest_.serial_depth;
  const Stmt first = EmitMade(carried.made, nullptr, meeting.arrive);
  handover_.defer = GroupHandover::Defer::kProducts;
  const Stmt rows = emitter_.EmitLoops(p.id, p.last + 1, p.end, p.inner);
  handover_.defer = GroupHandover::Defer::kNothing;
  const Stmt products = std::exchange(handover_.products, nullptr), end = std::exchange(handover_.end, nullptr);
  const Stmt next = EmitMade(carried.made, in_use(p.step, products), meeting.arrive);
  --nest_.serial_depth;
  const Stmt loop = MakeSeq({whole   ? nullptr
                             : apart ? meeting.await
                                     : together(now),
                             copies(Add(now, IntImm(distance))), copies_.tensor.Await(p, now),
                             in_use(now, MakeSeq({next, end, rows}))});
  return MakeSeq({meeting.init, copies_.tensor.Init(p), MakeFor(ForKind::kSerial, ahead, distance, copies(ahead), 1),
                  together(IntImm(0)), copies(IntImm(distance)), copies_.tensor.Await(p, IntImm(0)),
                  in_use(IntImm(0), MakeSeq({first, rows})),
                  MakeFor(ForKind::kSerial, p.step, p.iterations - 1, loop, 1),
                  in_use(IntImm(p.iterations - 1), products), end});
}

}  // namespace diapason
