#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/apply_step.h"

// Steps that add stages: copies, partial results and constants in other layouts.
namespace diapason {
namespace {

// Fresh axis variables for a copy of a stage, and the map from the old ones.
std::vector<Axis> FreshAxes(const std::vector<Axis>& axes, VarMap* map) {
  std::vector<Axis> fresh;
  for (const Axis& axis : axes) {
    fresh.push_back({MakeVar(axis.var->name), axis.extent});
    (*map)[axis.var.get()] = fresh.back().var;
  }
  return fresh;
}

std::vector<Expr> VarsOf(const std::vector<Axis>& axes) {
  std::vector<Expr> vars;
  for (const Axis& axis : axes) vars.push_back(axis.var);
  return vars;
}

// The stage becomes the reduction of the partial results that another one has, by its first axis.
void ReduceSlices(ScheduledStages& stages, int reduction, int partial, int64_t slice_extent) {
  StageState& stage = stages.at(reduction);
  stages.at(partial).prologue = stage.prologue;
  const Axis slices{MakeVar("s"), slice_extent};
  std::vector<Expr> indices = VarsOf(stage.op.axes);
  indices.insert(indices.begin(), slices.var);
  stage.op.reduce_axes = {slices};
  stage.op.body = Load(partial, stage.op.dtype, indices);
  stages.ResetLoops(stage);
}

// The axis as three: the outer and the inner piece are reduced by the new stage, the middle one is its first axis.
absl::Status RfactorMiddle(ScheduledStages& stages, const Step& step) {
  const Stage op = stages.at(step.stage).op;
  const Loop& piece = stages.at(step.stage).loops[step.loops[0]];
  const Loop& split = stages.at(step.stage).loops[piece.parent];
  if (piece.level != 1) return BadStep(stages.at(step.stage), "of three pieces rfactor takes the one in the middle");
  const int64_t middle = piece.factor.value, inner = stages.at(step.stage).loops[split.pieces[2]].factor.value;
  const int reduce_index = split.axis - static_cast<int>(op.axes.size());
  const int64_t extent = op.reduce_axes[reduce_index].extent;
  const int64_t outer = (extent + middle * inner - 1) / (middle * inner);
  Stage partial = op;
  VarMap map;
  partial.name = op.name + ".rf";
  partial.axes = FreshAxes(op.axes, &map);
  partial.reduce_axes = FreshAxes(op.reduce_axes, &map);
  const std::string& name = op.reduce_axes[reduce_index].var->name;
  const Axis slice{MakeVar("s"), middle}, rest{MakeVar(name), outer}, last{MakeVar(name + "_in"), inner};
  const Expr whole = Add(Mul(Add(Mul(rest.var, IntImm(middle)), slice.var), IntImm(inner)), last.var);
  map[op.reduce_axes[reduce_index].var.get()] = whole;
  partial.reduce_axes[reduce_index] = rest;
  partial.reduce_axes.insert(partial.reduce_axes.begin() + reduce_index + 1, last);
  partial.axes.insert(partial.axes.begin(), slice);
  partial.body = Substitute(op.body, map);
  if (outer * middle * inner != extent)
    partial.body = Select(Lt(whole, IntImm(extent)), partial.body, IdentityOf(op.combiner, op.dtype));
  partial.unroll_axes.clear();
  ReduceSlices(stages, step.stage, stages.Add(std::move(partial), step.stage), middle);
  return absl::OkStatus();
}

// Readers of a constant read a new stage instead, the last, which holds it in a layout of its own.
absl::Status ReadThrough(ScheduledStages& stages, int stage, const std::vector<int>& readers, const char* ending) {
  Step read{StepKind::kCacheRead, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kGlobal)}};
  read.ints.insert(read.ints.end(), readers.begin(), readers.end());
  RETURN_IF_ERROR(ApplyCacheRead(stages, read));
  stages.last().op.name = stages.UniqueName(stages.at(stage).op.name + ending);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyCacheWrite(ScheduledStages& stages, const Step& step) {
  if (stages.at(step.stage).op.placeholder || step.ints.size() != 1)
    return BadStep(stages.at(step.stage), "a cache write takes a computed stage and a scope");
  if (!IsMemory(step.ints[0]))
    return BadStep(stages.at(step.stage), absl::StrCat("a cache write names the unknown memory ", step.ints[0]));
  if (static_cast<int>(stages.at(step.stage).loops.size()) != stages.at(step.stage).axis_count())
    return BadStep(stages.at(step.stage), "a cache write must come before its loops are changed");
  Stage cache = stages.at(step.stage).op;
  VarMap map;
  cache.name += ".acc";
  cache.axes = FreshAxes(cache.axes, &map);
  cache.reduce_axes = FreshAxes(cache.reduce_axes, &map);
  cache.body = Substitute(cache.body, map);
  cache.unroll_axes.clear();
  const int id = stages.Add(std::move(cache), step.stage);
  StageState& stage = stages.at(step.stage);
  stages.at(id).memory = static_cast<Memory>(step.ints[0]);
  stages.at(id).prologue = stage.prologue;
  stage.op.reduce_axes.clear();
  stage.op.combiner = Combiner::kNone;
  stage.op.body = Load(id, stage.op.dtype, VarsOf(stage.op.axes));
  stages.ResetLoops(stage);
  return absl::OkStatus();
}

absl::Status ApplyCacheRead(ScheduledStages& stages, const Step& step) {
  if (step.ints.size() < 2) return BadStep(stages.at(step.stage), "a cache read takes a scope and readers");
  if (!IsMemory(step.ints[0]))
    return BadStep(stages.at(step.stage), absl::StrCat("a cache read names the unknown memory ", step.ints[0]));
  Stage cache;
  VarMap map;
  cache.name = stages.at(step.stage).op.name + (step.ints[0] == 1 ? ".shared" : ".local");
  cache.dtype = stages.at(step.stage).op.dtype;
  cache.axes = FreshAxes(stages.at(step.stage).op.axes, &map);
  cache.body = Load(step.stage, cache.dtype, VarsOf(cache.axes));
  int first = -1;
  const std::vector<int> consumers = stages.Consumers(step.stage);
  for (size_t i = 1; i < step.ints.size(); ++i) {
    if (std::find(consumers.begin(), consumers.end(), step.ints[i]) == consumers.end())
      return BadStep(stages.at(step.stage), absl::StrCat("stage ", step.ints[i], " does not read it"));
  }
  for (int id : stages.topological()) {
    if (std::find(step.ints.begin() + 1, step.ints.end(), id) == step.ints.end()) continue;
    first = id;
    break;
  }
  const int id = stages.Add(std::move(cache), first);
  stages.at(id).memory = static_cast<Memory>(step.ints[0]);
  stages.at(id).prologue = stages.at(step.stage).prologue;
  for (size_t i = 1; i < step.ints.size(); ++i) {
    Expr& body = stages.at(step.ints[i]).op.body;
    body = ReplaceLoads(body, step.stage, [&](const Expr& load) { return Load(id, load->dtype, load->args); });
  }
  return absl::OkStatus();
}

absl::Status ApplyRfactor(ScheduledStages& stages, const Step& step) {
  if (step.loops.size() != 1) return BadStep(stages.at(step.stage), "rfactor takes one loop");
  const Loop piece = stages.at(step.stage).loops[step.loops[0]];
  const Stage op = stages.at(step.stage).op;
  if (!piece.reduce || piece.origin != Loop::Origin::kSplit)
    return BadStep(stages.at(step.stage), "rfactor takes a piece of a split reduce axis");
  const Loop& split = stages.at(step.stage).loops[piece.parent];
  if (split.origin != Loop::Origin::kAxis || split.pieces.size() > 3 || split.pieces.size() < 2)
    return BadStep(stages.at(step.stage), "rfactor takes a reduce axis that is split in two or three");
  for (size_t p = 1; p < split.pieces.size(); ++p) {
    const Factor& factor = stages.at(step.stage).loops[split.pieces[p]].factor;
    if (!factor.is_constant() || factor.value < 1)
      return BadStep(stages.at(step.stage), "the factor of rfactor must be a number");
  }
  if (split.pieces.size() == 3) return RfactorMiddle(stages, step);
  const Factor inner = stages.at(step.stage).loops[split.pieces[1]].factor;
  const int reduce_index = split.axis - static_cast<int>(op.axes.size());
  const int64_t extent = op.reduce_axes[reduce_index].extent;
  const int64_t inner_extent = inner.value, outer_extent = (extent + inner_extent - 1) / inner_extent;
  const bool of_outer = piece.level == 0;
  const int64_t slice_extent = of_outer ? outer_extent : inner_extent;

  Stage partial = op;
  VarMap map;
  partial.name = op.name + ".rf";
  partial.axes = FreshAxes(op.axes, &map);
  partial.reduce_axes = FreshAxes(op.reduce_axes, &map);
  const Axis slice{MakeVar("s"), slice_extent};
  const Axis rest{MakeVar(op.reduce_axes[reduce_index].var->name), of_outer ? inner_extent : outer_extent};
  const Expr whole = Add(Mul(of_outer ? slice.var : rest.var, IntImm(inner_extent)), of_outer ? rest.var : slice.var);
  map[op.reduce_axes[reduce_index].var.get()] = whole;
  partial.reduce_axes[reduce_index] = rest;
  partial.axes.insert(partial.axes.begin(), slice);
  partial.body = Substitute(op.body, map);
  if (outer_extent * inner_extent != extent)
    partial.body = Select(Lt(whole, IntImm(extent)), partial.body, IdentityOf(op.combiner, op.dtype));
  partial.unroll_axes.clear();
  const int id = stages.Add(std::move(partial), step.stage);

  ReduceSlices(stages, step.stage, id, slice_extent);
  return absl::OkStatus();
}

absl::Status ApplyPack(ScheduledStages& stages, const Step& step) {
  if (step.target < 0 || step.target >= stages.size() || !stages.at(step.target).prologue)
    return BadStep(stages.at(step.stage), "only a constant can be packed");
  const size_t rank = stages.at(step.target).op.axes.size();
  if (step.factors.size() != rank || step.ints.size() != 2 * rank)
    return BadStep(stages.at(step.target), "a packed layout needs a factor and two places a dimension");
  RETURN_IF_ERROR(ReadThrough(stages, step.target, stages.Consumers(step.target), ".packed"));
  StageState& packed = stages.last();
  packed.layout_factors = step.factors;
  packed.layout_order.assign(step.ints.begin(), step.ints.end());
  std::vector<int> sorted = packed.layout_order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int>(i)) return BadStep(packed, "a packed layout must name each piece once");
  stages.UpdatePrologue();
  return absl::OkStatus();
}

absl::Status ApplyBulkCopy(ScheduledStages& stages, const Step& step) {
  const StageState& copy = stages.at(step.stage);
  const Expr& body = copy.op.body;
  bool plain = body && body->kind == ExprKind::kLoad && copy.attach == StageState::Attach::kAt &&
               copy.memory == Memory::kShared && !copy.bulk && stages.at(body->buffer).prologue &&
               stages.at(body->buffer).attach == StageState::Attach::kRoot && body->args.size() == copy.op.axes.size();
  for (size_t d = 0; plain && d < body->args.size(); ++d) plain = body->args[d] == copy.op.axes[d].var;
  if (!plain) return BadStep(copy, "only a plain copy of a constant in shared memory is made a tile at a time");
  if (step.factors.size() != 1) return BadStep(copy, "one number is needed");
  RETURN_IF_ERROR(ReadThrough(stages, body->buffer, {step.stage}, ".tiles"));
  stages.last().image_of = step.stage;
  stages.at(step.stage).bulk = true;
  stages.at(step.stage).bulk_tiles = step.factors[0];
  return absl::OkStatus();
}

absl::Status ApplyRoundFactors(ScheduledStages& stages, const Step& step) {
  const StageState& constant = stages.at(step.stage);
  if (!constant.prologue || constant.attach != StageState::Attach::kRoot || constant.op.reduces() || constant.rounded ||
      constant.op.dtype != DType::kFloat32)
    return BadStep(constant, "only constants of float32 are rounded at build time, once");
  int id = step.stage;
  if (constant.op.placeholder) {
    RETURN_IF_ERROR(ReadThrough(stages, id, stages.Consumers(id), ".rounded"));
    stages.UpdatePrologue();
    id = stages.size() - 1;
  }
  stages.at(id).rounded = true;
  stages.at(id).op.body = Call("tf32", {stages.at(id).op.body});
  return absl::OkStatus();
}

}  // namespace diapason
