#include "compiler/lower/lane_registers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/lower/loop_values.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

Expr LaneRegisters::RegisterOf(int id, const std::vector<Expr>& values) {
  const StageState& stage = nest_.kernel.state.stage(id);
  Expr flat = IntImm(0);
  for (int loop : stage.order) {
    const int64_t extent = nest_.kernel.bounds.stages[id].extent[loop];
    if (stage.loops[loop].reduce || stage.loops[loop].annotation == Annotation::kThreadX || extent == 1) continue;
    flat = Add(Mul(flat, IntImm(extent)), values[loop]);
  }
  return nest_.analyzer.Simplify(flat);
}

// The values of the loops that a loop was split into, down to those that were split no more.
void LaneRegisters::AddDigits(int id, int loop, const Expr& value, std::vector<Expr>* values) {
  const std::vector<int>& pieces = nest_.kernel.state.stage(id).loops[loop].pieces;
  const std::vector<int64_t>& extent = nest_.kernel.bounds.stages[id].extent;
  (*values)[loop] = value;
  int64_t inside = 1;
  for (size_t p = pieces.size(); p-- > 0; inside *= extent[pieces[p]]) {
    Expr digit = FloorDiv(value, inside);
    if (p > 0) digit = FloorMod(digit, extent[pieces[p]]);
    AddDigits(id, pieces[p], extent[pieces[p]] == 1 ? IntImm(0) : nest_.analyzer.Simplify(digit), values);
  }
}

Expr LaneRegisters::LoadElement(int reader, const Expr& load, const std::vector<Expr>& indices, bool conditional) {
  const int id = load->buffer;
  const StageState& stage = nest_.kernel.state.stage(id);
  const std::vector<int64_t>& extents = nest_.kernel.bounds.stages[id].extent;
  const auto refuse = [&](const char* why) {
    nest_.Refuse(absl::InvalidArgumentError(absl::StrCat("stage ", nest_.kernel.state.stage(reader).op.name, " reads ",
                                                         stage.op.name, ", which lanes have, ", why)));
    return Load(id, load->dtype, {IntImm(0)});
  };
  std::vector<Expr> values(stage.loops.size());
  for (size_t d = 0; d < indices.size(); ++d) AddDigits(id, static_cast<int>(d), indices[d], &values);
  const Expr thread = ThreadOf(nest_, reader);
  const auto over_threads = std::find_if(stage.order.begin(), stage.order.end(), [&](int loop) {
    return stage.loops[loop].annotation == Annotation::kThreadX;
  });
  if (!thread || over_threads == stage.order.end()) return refuse("outside of a loop over threads");
  const struct Loop& threads = stage.loops[*over_threads];
  const std::vector<int> parts = threads.fused.empty() ? std::vector<int>{*over_threads} : threads.fused;
  Expr lane = IntImm(0);
  bool own = true;
  int64_t inside = 1;
  for (size_t p = parts.size(); p-- > 0;) {
    const int64_t extent = extents[parts[p]];
    const Expr mine = nest_.analyzer.Simplify(FloorMod(FloorDiv(thread, inside), extent));
    const bool replica = stage.loops[parts[p]].origin == Loop::Origin::kReplica;  // each has it
    if (!replica && !values[parts[p]]) return refuse("by threads that are no pieces of its axes");
    const Expr theirs = replica ? mine : values[parts[p]];
    const bool same = extent == 1 || Equal(theirs, mine);
    if (!same && inside * extent > kLanesOfWarp) return refuse("from threads of another warp");
    if (inside < kLanesOfWarp) lane = Add(lane, Mul(theirs, IntImm(inside)));
    own = own && same;
    inside *= extent;
  }
  if (inside != nest_.kernel.threads) return refuse("and are not all threads of the block");
  for (int loop : stage.order) {
    const bool kept = !stage.loops[loop].reduce && stage.loops[loop].annotation != Annotation::kThreadX;
    if (kept && extents[loop] > 1 && !values[loop]) return refuse("in loops that are no pieces of its axes");
  }
  const Expr element = Load(id, load->dtype, {RegisterOf(id, values)});
  if (own) return element;
  if (conditional) return refuse("under a condition, from another thread");
  const int copy = nest_.buffers.NewId();
  nest_.buffers.Declare({copy, absl::StrCat("shuffled", copy), load->dtype, Scope::kLocal, 1, true, 0});
  shuffles_.push_back(MakeShuffle(copy, IntImm(0), element, nest_.analyzer.Simplify(lane)));
  return Load(copy, load->dtype, {IntImm(0)});
}

std::vector<Stmt> LaneRegisters::TakeShuffles() { return std::exchange(shuffles_, {}); }

Stmt LaneRegisters::WithShuffles(int id, std::vector<Stmt> shuffles, bool by_all, Stmt stmt) {
  if (shuffles.empty()) return stmt;
  if (!by_all)
    nest_.Refuse(absl::InvalidArgumentError(absl::StrCat("stage ", nest_.kernel.state.stage(id).op.name,
                                                         " reads what other lanes have where not all of them do")));
  shuffles.push_back(std::move(stmt));
  return MakeSeq(std::move(shuffles));
}

}  // namespace diapason
