// Software pipelines around products by warpgroups, which run on their own (group_products.h).
#include <memory>
#include <utility>

#include "compiler/lower/nest.h"

namespace diapason {
namespace {

// What stores zeros in place of all values where the condition does not hold: without branches, if the stores are
// copies by hardware.
Stmt StoresIf(const Expr& condition, const Stmt& stmt) {
  if (!stmt) return stmt;
  StmtNode node = *stmt;
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

// A pipeline as EmitPipeline's, whose steps start the products of iteration t and beside them cut what iteration t + 1
// needs in two and start the copies of iteration t + slots - 1. A thread cuts what it has copied itself, so one barrier
// a step is enough. `at` binds the loops of an iteration. Where both factors lie in shared memory and there are more
// than two slots, the products of iteration t - 1 may be under way still when those of t start: the copies that start
// then are of iteration t + slots - 2, into the slot of t - 2. Nothing branches between the start of products and their
// wait: ptxas would make them wait for each other (C7514).
Stmt NestBuilder::EmitGroupPipeline(const SoftwarePipeline& p) {
  const int id = p.id;
  const size_t last = p.last;
  const int64_t slots = p.slots, iterations = p.iterations;
  const Expr& step = p.step;
  bool once = true;  // a step makes products once
  for (size_t l = last + 1; l < p.end; ++l) once &= bounds_.stages[id].extent[state_.stage(id).order[l]] == 1;
  const bool flying = once && slots > 2 && state_.reads_core_matrices(id);
  const int64_t distance = slots - (flying ? 2 : 1);
  const Expr ahead = MakeVar("ahead");
  analyzer_.Bind(ahead, distance);
  analyzer_.Bind(step, iterations);
  auto copies = [&](const Expr& iteration) {
    Stmt body = p.at(Min(iteration, IntImm(iterations - 1)), AttachedAt(id, last, true));
    return MakeLet(p.fill, analyzer_.Simplify(FloorMod(iteration, slots)), body);
  };
  auto small = [&](const Expr& iteration) { return core_matrices_.Finish(id, last, iteration, slots); };
  auto before = [&](const Expr& iteration, Stmt body) {
    return MakeIf(analyzer_.Simplify(Lt(iteration, IntImm(iterations))), body);
  };

  const Stmt first = MakeFor(ForKind::kSerial, ahead, distance, MakeSeq({copies(ahead), MakeCommit()}), 1);
  std::vector<Stmt> body{MakeBarrier()};
  ++nest_.serial_depth;
  handover_.iteration = step;
  handover_.defer = once ? GroupHandover::Defer::kEnd : GroupHandover::Defer::kNothing;
  handover_.end = nullptr;
  Stmt products = MakeSeq({AttachedAt(id, last, false), EmitLoops(id, last + 1, p.end, p.inner)});
  const Stmt sums = handover_.end;
  handover_.defer = GroupHandover::Defer::kNothing;
  handover_.end = nullptr;
  --nest_.serial_depth;
  auto in_use = [&](Stmt part) { return MakeLet(p.use, FloorMod(step, slots), p.at(step, part)); };
  body.push_back(in_use(products));
  const Expr next = Add(step, IntImm(1)), later = Add(step, IntImm(distance));
  const Stmt start_copies = MakeSeq({before(later, copies(later)), MakeCommit()});
  if (flying) {
    const Stmt copies_if = StoresIf(analyzer_.Simplify(Lt(later, IntImm(iterations))), copies(later));
    body.insert(body.end(),
                {copies_if, MakeCommit(), MakeWait(slots - 3), small(next), MakeGroupSync(GroupSync::kWait, 1)});
    return MakeSeq({first, MakeWait(slots - 3), small(IntImm(0)),
                    MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1), sums});
  }
  if (slots > 2) {
    body.insert(body.end(), {MakeWait(slots - 3), before(next, small(next)), start_copies});
  } else {
    body.insert(body.end(), {start_copies, MakeWait(0), before(next, small(next))});
  }
  body.push_back(sums ? in_use(sums) : nullptr);
  return MakeSeq(
      {first, MakeWait(slots - 2), small(IntImm(0)), MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1)});
}

// A pipeline whose loop carries reductions (StepKind::kCarry), with more than two slots: the products of a step, by
// rows that were made in it, start behind the first products of the next one and run beside all that is computed from
// these (Shah et al. 2024, "Intra-warpgroup overlap"). A step reads its own copies and, of the products' columns, those
// of the step before, so copies are started slots - 2 iterations ahead.
//
// With more than three slots the warpgroups need not begin a step together, so that one computes while the products of
// another are made: a thread arrives at a barrier once its first products of a step are done and its copies for the
// next one are there, and waits at the beginning of that for the others to have arrived. They may then still read what
// the step before the last one has left, so copies are started slots - 3 iterations ahead.
Stmt NestBuilder::EmitCarriedGroupPipeline(const SoftwarePipeline& p, const CarriedStep& carried) {
  const bool apart = p.slots > 3;
  const int64_t distance = p.slots - (apart ? 3 : 2);
  const Expr ahead = MakeVar("ahead"), now = Add(p.step, IntImm(1));
  analyzer_.Bind(ahead, distance);
  analyzer_.Bind(p.step, p.iterations - 1);
  Stmt init, arrive, await;
  if (apart) {
    const int buffer = nest_.buffers.NewId();
    nest_.buffers.Declare({buffer, "steps_begun", DType::kInt64, Scope::kShared, 1, true, 16, false, true});
    const Expr barrier = Load(buffer, DType::kInt64, {IntImm(0)});
    init = MakeIf(Eq(ThreadOf(nest_, p.id), IntImm(0)), MakeMbarrierInit(barrier, 1, kernel_.threads));
    arrive = MakeSeq({MakeWait(distance - 1), MakeGroupSync(GroupSync::kPublish), MakeMbarrierArrive(barrier)});
    await = MakeMbarrierWait(barrier, analyzer_.Simplify(FloorMod(p.step, 2)));
  }
  const auto copies = [&](const Expr& iteration) {
    const Expr exists = analyzer_.Simplify(Lt(iteration, IntImm(p.iterations)));
    return MakeSeq({MakeIf(exists, carried.copies(iteration)), MakeCommit()});
  };
  const auto in_use = [&](const Expr& iteration, Stmt part) {
    return MakeLet(p.use, analyzer_.Simplify(FloorMod(iteration, p.slots)), p.at(iteration, std::move(part)));
  };
  // Waits for the copies of a step.
  const auto together = [&](const Expr& iteration) {
    return MakeSeq({MakeWait(distance - 1), core_matrices_.Finish(p.id, p.last, iteration, p.slots), MakeBarrier()});
  };
  const auto made = [&](Stmt behind) {
    handover_.behind = std::move(behind);
    handover_.after = arrive;
    const Stmt all = EmitInTurn(carried.made, /*after_barrier=*/true);
    handover_.after = nullptr;
    if (std::exchange(handover_.behind, nullptr))
      nest_.Refuse(absl::InvalidArgumentError("a step of keys by warpgroups has products of its own"));
    return all;
  };
  ++nest_.serial_depth;
  const Stmt first = made(nullptr);
  handover_.defer = GroupHandover::Defer::kProducts;
  const Stmt rows = EmitLoops(p.id, p.last + 1, p.end, p.inner);
  handover_.defer = GroupHandover::Defer::kNothing;
  const Stmt products = std::exchange(handover_.products, nullptr), end = std::exchange(handover_.end, nullptr);
  const Stmt next = made(in_use(p.step, products));
  --nest_.serial_depth;
  const Stmt loop = MakeSeq(
      {apart ? await : together(now), copies(Add(now, IntImm(distance))), in_use(now, MakeSeq({next, end, rows}))});
  return MakeSeq({init, MakeFor(ForKind::kSerial, ahead, distance, copies(ahead), 1), together(IntImm(0)),
                  copies(IntImm(distance)), in_use(IntImm(0), MakeSeq({first, rows})),
                  MakeFor(ForKind::kSerial, p.step, p.iterations - 1, loop, 1),
                  in_use(IntImm(p.iterations - 1), products), end});
}

}  // namespace diapason
