#include "compiler/lower/recurrent_sums.h"

#include <utility>

#include "compiler/schedule/region.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int kTermsAtOnce = 8;

Expr Zero(DType dtype) { return IsFloat(dtype) ? FloatImm(0, dtype) : IntImm(0, dtype); }

}  // namespace

int64_t RecurrentSums::TermsOfLane(const Stage& stage) const { return CeilDiv(stage.terms(), nest_.tiles.lanes); }

std::vector<RecurrentSums::Run> RecurrentSums::RunsOf(const Stage& stage) const {
  const RecurrentSchedule& schedule = nest_.context.schedule;
  const int64_t all = TermsOfLane(stage), held = schedule.TermsInRegisters(nest_.tiles, stage);
  const bool shared = schedule.TermsInShared(nest_.tiles, stage) > 0;
  std::vector<Run> runs;
  if (held > 0) runs.push_back({0, held, WeightsIn::kRegisters});
  if (held < all) runs.push_back({held, all - held, shared ? WeightsIn::kShared : WeightsIn::kGlobal});
  return runs;
}

Expr RecurrentSums::Term(const Expr& round) const {
  return nest_.gpu ? Add(Mul(round, IntImm(nest_.tiles.lanes)), nest_.lane) : round;
}

// Of term number `round` of the run.
Expr RecurrentSums::WeightIndex(const Kept& kept, const Run& run, int64_t group, const Expr& round) const {
  const Expr units = IntImm(nest_.tiles.units);
  if (run.registers()) return Add(Mul(Add(IntImm(group * run.terms), round), units), nest_.each);
  const Expr unit = Add(Mul(FloorDiv(nest_.thread, nest_.tiles.lanes), units), nest_.each);
  const Expr column = Add(Mul(unit, IntImm(kept.groups)), IntImm(group));
  return Add(Mul(column, IntImm(kept.stride)), Term(round));
}

Stmt RecurrentSums::KeepWeights() {
  const RecurrentSchedule& schedule = nest_.context.schedule;
  std::vector<Stmt> all;
  for (size_t i = 0; i < nest_.r.body.size(); ++i) {
    const Stage& stage = nest_.dag.stage(nest_.r.body[i]);
    if (!stage.reduces()) continue;
    const int64_t groups = nest_.r.GroupsOf(stage);
    for (const Run& run : RunsOf(stage)) {
      if (run.in == WeightsIn::kGlobal) continue;
      for (const Expr& load : WeightLoads(nest_.r, stage, nest_.r.expressions[i])) {
        Kept kept{load, -1, groups,
                  schedule.WeightStride(nest_.tiles, schedule.TermsInShared(nest_.tiles, stage), groups)};
        const int64_t elements = run.registers() ? groups * run.terms * nest_.tiles.units
                                                 : schedule.UnitsOfThreads(nest_.tiles) * groups * kept.stride;
        kept.buffer =
            nest_.Declare(stage.name + "_weights", load->dtype, run.registers() ? Scope::kLocal : Scope::kShared,
                          elements, run.registers() && IsNarrowFloat(load->dtype));
        all.push_back(Keep(kept, run, stage));
        kept_[{nest_.r.body[i], run.first}].push_back(std::move(kept));
      }
    }
  }
  return MakeSeq(std::move(all));
}

Stmt RecurrentSums::Keep(const Kept& kept, const Run& run, const Stage& stage) {
  const Expr round = MakeVar("term"), term = Term(Add(round, IntImm(run.first)));
  const bool whole = stage.terms() % nest_.tiles.lanes == 0;
  const Expr inside = Lt(term, IntImm(stage.terms()));
  std::vector<Stmt> stores;
  for (int64_t group = 0; group < nest_.r.GroupsOf(stage); ++group) {
    const Expr value = nest_.WithTerm(kept.load, stage, {0, group}, term);
    stores.push_back(MakeStore(kept.buffer, WeightIndex(kept, run, group, round),
                               whole || !run.registers() ? value : Select(inside, value, Zero(kept.load->dtype))));
  }
  Stmt body = nest_.ForEach(MakeSeq(std::move(stores)));
  if (!run.registers() && !whole) body = MakeIf(inside, body);
  return MakeFor(run.registers() ? ForKind::kUnroll : ForKind::kSerial, round, run.terms, body);
}

Expr RecurrentSums::SumIndex(const Stage& stage, RowAndGroup at) const {
  if (nest_.gpu) return nest_.LocalIndex(stage, at);
  return Add(IntImm((at.row * nest_.r.GroupsOf(stage) + at.group) * nest_.tiles.units), nest_.each);
}

Stmt RecurrentSums::Emit(size_t i) {
  const int id = nest_.r.body[i];
  const Stage& stage = nest_.dag.stage(id);
  const auto load = [&](int from, const Expr& index) { return Load(from, stage.dtype, {index}); };
  const auto each = [&](const RecurrentNest::OfElement& make) {
    return nest_.ForEach(nest_.OverElements(stage, make));
  };
  const int sums = nest_.gpu ? nest_.LocalOf(id)
                             : nest_.Declare(stage.name + "_sums", stage.dtype, Scope::kLocal,
                                             nest_.r.RowsOf(stage) * nest_.r.GroupsOf(stage) * nest_.tiles.units);
  std::vector<Stmt> all;
  all.push_back(each(
      [&](RowAndGroup at) { return MakeStore(sums, SumIndex(stage, at), IdentityOf(Combiner::kSum, stage.dtype)); }));
  for (const Run& run : RunsOf(stage)) all.push_back(AddTerms(i, run, sums));
  if (nest_.tiles.lanes > 1) all.push_back(nest_.cuda ? MeetInWarp(stage, sums) : MeetInMemory(stage, sums));
  if (!nest_.gpu)
    all.push_back(each([&](RowAndGroup at) {
      return MakeStore(nest_.LocalOf(id), nest_.LocalIndex(stage, at), load(sums, SumIndex(stage, at)));
    }));
  return MakeSeq(std::move(all));
}

Stmt RecurrentSums::AddTerms(size_t i, const Run& run, int sums) {
  const Stage& stage = nest_.dag.stage(nest_.r.body[i]);
  const Expr round = MakeVar("term"), term = Term(Add(round, IntImm(run.first)));
  Stmt terms = nest_.ForEach(nest_.OverElements(stage, [&](RowAndGroup at) {
    const Expr index = SumIndex(stage, at);
    const Expr value = nest_.WithTerm(WithKeptWeights(i, run, at.group, round), stage, at, term);
    return MakeStore(sums, index, Add(Load(sums, stage.dtype, {index}), value));
  }));
  if (stage.terms() % nest_.tiles.lanes != 0) terms = MakeIf(Lt(term, IntImm(stage.terms())), terms);
  return MakeFor(run.registers() ? ForKind::kUnroll : ForKind::kSerial, round, run.terms, terms,
                 run.registers() || !nest_.gpu ? 0 : kTermsAtOnce);
}

// The stage's expression with loads of the run's weights where they are kept.
Expr RecurrentSums::WithKeptWeights(size_t i, const Run& run, int64_t group, const Expr& round) const {
  const auto kept = kept_.find({nest_.r.body[i], run.first});
  if (kept == kept_.end()) return nest_.r.expressions[i];
  return Rewrite(nest_.r.expressions[i], [&](const Expr& e) -> Expr {
    if (e->kind != ExprKind::kLoad) return e;
    for (const Kept& weights : kept->second)
      if (Equal(weights.load, e)) return Load(weights.buffer, e->dtype, {WeightIndex(weights, run, group, round)});
    return e;
  });
}

// Lanes add up in the same order, whichever begins: a + b is b + a.
Stmt RecurrentSums::MeetInWarp(const Stage& stage, int sums) {
  const int other = nest_.Declare("other", stage.dtype, Scope::kLocal, 1);
  const Expr zero = IntImm(0), first = Sub(FloorMod(nest_.thread, kLanesOfWarp), nest_.lane);
  std::vector<Stmt> all;
  for (int64_t half = nest_.tiles.lanes / 2; half >= 1; half /= 2)
    all.push_back(nest_.ForEach(nest_.OverElements(stage, [&](RowAndGroup at) {
      const Expr index = nest_.LocalIndex(stage, at), mine = Load(sums, stage.dtype, {index});
      const Expr from = Add(first, FloorMod(Add(nest_.lane, IntImm(half)), nest_.tiles.lanes));
      return MakeSeq(
          {MakeShuffle(other, zero, mine, from), MakeStore(sums, index, Add(mine, Load(other, stage.dtype, {zero})))});
    })));
  return MakeSeq(std::move(all));
}

Stmt RecurrentSums::MeetInMemory(const Stage& stage, int sums) {
  const int64_t each = nest_.r.RowsOf(stage) * nest_.r.GroupsOf(stage) * nest_.tiles.units;
  const int parts =
      nest_.Declare("parts", stage.dtype, Scope::kShared, each * nest_.context.schedule.Threads(nest_.tiles));
  const Expr first = Sub(nest_.thread, nest_.lane);
  const auto part = [&](const Expr& thread, RowAndGroup at) {
    return Add(Mul(thread, IntImm(each)), nest_.LocalIndex(stage, at));
  };
  const Stmt leave = nest_.ForEach(nest_.OverElements(stage, [&](RowAndGroup at) {
    return MakeStore(parts, part(nest_.thread, at), Load(sums, stage.dtype, {nest_.LocalIndex(stage, at)}));
  }));
  const Stmt meet = nest_.ForEach(nest_.OverElements(stage, [&](RowAndGroup at) {
    Expr sum = Load(parts, stage.dtype, {part(first, at)});
    for (int64_t l = 1; l < nest_.tiles.lanes; ++l)
      sum = Add(sum, Load(parts, stage.dtype, {part(Add(first, IntImm(l)), at)}));
    return MakeStore(sums, nest_.LocalIndex(stage, at), sum);
  }));
  return MakeSeq({leave, MakeBarrier(), meet, MakeBarrier()});
}

}  // namespace diapason
