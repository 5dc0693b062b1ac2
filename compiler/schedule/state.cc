#include "compiler/schedule/state.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/library.h"
#include "compiler/tensor/tree_size.h"

namespace diapason {
namespace {

absl::Status Bad(const StageState& stage, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": ", what));
}

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

Expr ReplaceLoads(const Expr& body, int from, const std::function<Expr(const Expr&)>& replacement) {
  return Rewrite(body,
                 [&](const Expr& e) { return e->kind == ExprKind::kLoad && e->buffer == from ? replacement(e) : e; });
}

// The kinds of memory that a step can name for a copy; its number may come from a peer.
bool IsMemory(int32_t number) { return number >= 0 && number <= static_cast<int32_t>(Memory::kLocal); }

// What is multiplied in a term that may be zero under a condition.
void AddFactors(const Expr& e, std::vector<Expr>* factors) {
  const Expr& term = Unconverted(e);
  const bool condition =
      term->kind == ExprKind::kSelect && term->args[2]->kind == ExprKind::kFloatImm && term->args[2]->fvalue == 0;
  if (condition) return AddFactors(term->args[1], factors);
  if (term->kind != ExprKind::kMul) return factors->push_back(term);
  for (const Expr& factor : term->args) AddFactors(factor, factors);
}

// What a step of one number sets.
Factor& NumberOf(StepKind kind, StageState& stage) {
  switch (kind) {
    case StepKind::kPadRows: return stage.pad_rows;
    case StepKind::kAlignRows: return stage.align_rows;
    case StepKind::kUnroll: return stage.unroll;
    default: return stage.pipeline;
  }
}

}  // namespace

State::State(const ComputeDag& dag) : outputs_(dag.outputs()) {
  for (int id = 0; id < dag.size(); ++id) {
    StageState stage;
    stage.op = dag.stage(id);
    stage.prologue = dag.is_prologue(id);
    stages_.push_back(std::move(stage));
    ResetLoops(stages_.back());
    topological_.push_back(id);
  }
}

void State::ResetLoops(StageState& stage) {
  stage.carry = {};
  stage.loops.clear();
  stage.order.clear();
  for (int i = 0; i < stage.axis_count(); ++i) {
    Loop loop;
    loop.name = stage.axis(i).var->name;
    loop.reduce = !stage.is_spatial_axis(i);
    loop.axis = i;
    stage.order.push_back(static_cast<int>(stage.loops.size()));
    stage.loops.push_back(std::move(loop));
  }
}

bool State::is_output(int id) const { return std::find(outputs_.begin(), outputs_.end(), id) != outputs_.end(); }

std::vector<int> State::Producers(int id) const {
  std::vector<int> result;
  if (!stages_[id].op.body) return result;
  Visit(stages_[id].op.body, [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad && std::find(result.begin(), result.end(), e.buffer) == result.end())
      result.push_back(e.buffer);
  });
  return result;
}

// The products by warpgroups that a copy in core matrices is made for; null if it is none.
const TensorIntrinsic* State::ReaderOfCoreMatrices(int copy) const {
  const StageState& stage = stages_[copy];
  if (!stage.core_matrices || stage.attach != StageState::Attach::kAt) return nullptr;
  const TensorIntrinsic* products = FindTensorIntrinsic(static_cast<int>(stages_[stage.attach_stage].tensor));
  return products != nullptr && products->groups ? products : nullptr;
}

bool State::has_small_parts(int copy) const {
  const TensorIntrinsic* products = ReaderOfCoreMatrices(copy);
  return products != nullptr && products->parts;
}

bool State::is_rounded_in_place(int copy) const {
  const TensorIntrinsic* products = ReaderOfCoreMatrices(copy);
  const Expr& body = stages_[copy].op.body;
  return products != nullptr && products->rounds_factors() &&
         !(body->kind == ExprKind::kLoad && stages_[body->buffer].rounded);
}

bool State::reads_core_matrices(int products) const {
  const std::vector<int> copies = Producers(products);
  return std::all_of(copies.begin(), copies.end(), [&](int copy) { return stages_[copy].core_matrices; });
}

std::vector<int> State::Consumers(int id) const {
  std::vector<int> result;
  for (int other : topological_) {
    if (!stages_[other].computes()) continue;
    const std::vector<int> producers = Producers(other);
    if (std::find(producers.begin(), producers.end(), id) != producers.end()) result.push_back(other);
  }
  return result;
}

std::string State::UniqueName(const std::string& name) const {
  std::string candidate = name;
  for (int n = 1;; ++n) {
    bool taken = false;
    for (const StageState& stage : stages_) taken |= stage.op.name == candidate;
    if (!taken) return candidate;
    candidate = absl::StrCat(name, n);
  }
}

int State::AddStage(Stage op, int before) {
  const int id = size();
  StageState stage;
  op.name = UniqueName(op.name);
  stage.op = std::move(op);
  stages_.push_back(std::move(stage));
  ResetLoops(stages_.back());
  auto place = before < 0 ? topological_.end() : std::find(topological_.begin(), topological_.end(), before);
  topological_.insert(place, id);
  return id;
}

void State::UpdatePrologue() {
  for (int id : topological_) {
    StageState& stage = stages_[id];
    if (stage.op.placeholder) {
      stage.prologue = stage.op.constant;
      continue;
    }
    bool all = true;
    for (int producer : Producers(id)) all &= stages_[producer].prologue;
    stage.prologue = all && !is_output(id);
  }
}

absl::Status State::Apply(const Step& step) {
  if (step.stage < 0 || step.stage >= size())
    return absl::InvalidArgumentError(absl::StrCat("there is no stage ", step.stage));
  StageState& stage = stages_[step.stage];
  for (int loop : step.loops) {
    const StageState& owner =
        step.kind == StepKind::kComputeAt && step.target >= 0 && step.target < size() ? stages_[step.target] : stage;
    if (loop < 0 || loop >= static_cast<int>(owner.loops.size()))
      return Bad(owner, absl::StrCat("there is no loop ", loop));
  }
  switch (step.kind) {
    case StepKind::kSplit: return Split(step);
    case StepKind::kFuse: return Fuse(step);
    case StepKind::kReorder: return Reorder(step);
    case StepKind::kAnnotate:
      if (step.loops.size() != 1 || step.ints.size() != 1 || !stage.loops[step.loops[0]].is_leaf())
        return Bad(stage, "an annotation takes one leaf loop and one code");
      if (step.ints[0] < 0 || step.ints[0] > static_cast<int>(Annotation::kThreadSet))
        return Bad(stage, absl::StrCat("unknown annotation ", step.ints[0]));
      stage.loops[step.loops[0]].annotation = static_cast<Annotation>(step.ints[0]);
      return absl::OkStatus();
    case StepKind::kComputeAt: return ComputeAt(step);
    case StepKind::kInline: return Inline(step);
    case StepKind::kCacheWrite: return CacheWrite(step);
    case StepKind::kCacheRead: return CacheRead(step);
    case StepKind::kRfactor: return Rfactor(step);
    case StepKind::kPack: return Pack(step);
    case StepKind::kBulkCopy: return BulkCopy(step);
    case StepKind::kRoundFactors: return RoundFactors(step);
    case StepKind::kTensorize: return Tensorize(step);
    case StepKind::kLibrary: return CallLibrary(step);
    case StepKind::kPadRows:
    case StepKind::kUnroll:
    case StepKind::kPipeline:
    case StepKind::kAlignRows:
      if (step.factors.size() != 1) return Bad(stage, "one number is needed");
      NumberOf(step.kind, stage) = step.factors[0];
      return absl::OkStatus();
    case StepKind::kOverlap:
      if (step.factors.size() != 1) return Bad(stage, "one number is needed");
      has_overlap_ = true;
      overlap_ = step.factors[0];
      return absl::OkStatus();
    case StepKind::kGroupBlocks: return GroupBlocks(step);
    case StepKind::kCarry: return CarryReduction(step);
    case StepKind::kReplicate: return Replicate(step);
    case StepKind::kCoreMatrices:
      if (stage.op.axes.size() < 2) return Bad(stage, "core matrices have two dimensions");
      if (!stage.layout_factors.empty()) return Bad(stage, "a packed stage is not laid out again");
      if (step.factors.size() > 1) return Bad(stage, "core matrices have runs of one width");
      stage.core_matrices = true;
      stage.core_width = step.factors.empty() ? Factor() : step.factors[0];
      return absl::OkStatus();
    case StepKind::kAsyncCopy: stage.async_copy = true; return absl::OkStatus();
    case StepKind::kSetScope:
      if (step.ints.size() != 1 || !(IsMemory(step.ints[0]) || step.ints[0] == static_cast<int32_t>(Memory::kLanes)))
        return Bad(stage, "one scope is needed");
      stage.memory = static_cast<Memory>(step.ints[0]);
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown step kind ", static_cast<int>(step.kind)));
}

absl::Status State::Tensorize(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.loops.size() != 3 || step.ints.size() != 3 || step.target < 0 || step.target >= size())
    return Bad(stage, "tensor cores take loops k, m and n, a mode and two lane loops of a target");
  if (FindTensorIntrinsic(step.ints[0]) == nullptr)
    return Bad(stage, absl::StrCat("unknown mode ", step.ints[0], " of tensor cores"));
  const StageState& lanes = stages_[step.target];
  for (int loop : {step.ints[1], step.ints[2]})
    if (loop < 0 || loop >= static_cast<int>(lanes.loops.size()) || lanes.loops[loop].fused_into < 0)
      return Bad(lanes, absl::StrCat("loop ", loop, " is not fused into the threads"));
  const size_t n = stage.order.size();
  if (n < 3 || !std::equal(step.loops.begin(), step.loops.end(), stage.order.end() - 3))
    return Bad(stage, "the loops on tensor cores are the innermost three");
  if (!stage.loops[step.loops[0]].reduce || stage.loops[step.loops[1]].reduce || stage.loops[step.loops[2]].reduce)
    return Bad(stage, "the loops on tensor cores are a reduce loop and two spatial ones");
  stage.tensor = static_cast<TensorMode>(step.ints[0]);
  stage.tensor_k = step.loops[0];
  stage.tensor_m = step.loops[1];
  stage.tensor_n = step.loops[2];
  stage.lane_stage = step.target;
  stage.lane_m = step.ints[1];
  stage.lane_n = step.ints[2];
  return absl::OkStatus();
}

absl::Status State::Split(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.loops.size() != 1 || step.factors.empty()) return Bad(stage, "a split takes one loop and factors");
  const int parent = step.loops[0];
  if (!stage.loops[parent].is_leaf()) return Bad(stage, "only a leaf loop can be split");
  auto place = std::find(stage.order.begin(), stage.order.end(), parent);
  std::vector<int> pieces;
  for (int level = 0; level <= static_cast<int>(step.factors.size()); ++level) {
    Loop piece;
    piece.name = absl::StrCat(stage.loops[parent].name, ".", level);
    piece.reduce = stage.loops[parent].reduce;
    piece.origin = Loop::Origin::kSplit;
    piece.parent = parent;
    piece.level = level;
    if (level > 0) piece.factor = step.factors[level - 1];
    pieces.push_back(static_cast<int>(stage.loops.size()));
    stage.loops.push_back(std::move(piece));
  }
  stage.loops[parent].pieces = pieces;
  place = stage.order.erase(place);
  stage.order.insert(place, pieces.begin(), pieces.end());
  return absl::OkStatus();
}

absl::Status State::Fuse(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.loops.size() < 2) return Bad(stage, "a fusion takes two loops or more");
  auto place = std::find(stage.order.begin(), stage.order.end(), step.loops[0]);
  Loop fused;
  fused.origin = Loop::Origin::kFuse;
  fused.fused = step.loops;
  fused.reduce = stage.loops[step.loops[0]].reduce;
  for (size_t i = 0; i < step.loops.size(); ++i) {
    if (place + i >= stage.order.end() || *(place + i) != step.loops[i])
      return Bad(stage, "only adjacent leaf loops can be fused");
    if (stage.loops[step.loops[i]].reduce != fused.reduce)
      return Bad(stage, "a spatial and a reduce loop cannot be fused");
    absl::StrAppend(&fused.name, i ? "@" : "", stage.loops[step.loops[i]].name);
  }
  const int id = static_cast<int>(stage.loops.size());
  for (int loop : step.loops) stage.loops[loop].fused_into = id;
  stage.loops.push_back(std::move(fused));
  place = stage.order.erase(place, place + step.loops.size());
  stage.order.insert(place, id);
  return absl::OkStatus();
}

absl::Status State::GroupBlocks(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.loops.size() != 1 || step.factors.size() != 1)
    return Bad(stage, "a group of blocks takes one loop and a number of rows");
  Loop& loop = stage.loops[step.loops[0]];
  if (!loop.is_leaf() || loop.origin != Loop::Origin::kFuse || loop.annotation != Annotation::kBlockX)
    return Bad(stage, "blocks in groups are a loop over blocks that was made of several");
  loop.group = step.factors[0];
  return absl::OkStatus();
}

absl::Status State::Replicate(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.factors.size() != 1) return Bad(stage, "one number is needed");
  Loop loop;
  loop.name = "replica";
  loop.origin = Loop::Origin::kReplica;
  loop.factor = step.factors[0];
  stage.order.push_back(static_cast<int>(stage.loops.size()));
  stage.loops.push_back(std::move(loop));
  return absl::OkStatus();
}

absl::Status State::CarryReduction(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.loops.size() != 1 || step.ints.size() != 2 || step.target < 0 || step.target >= size())
    return Bad(stage, "to carry a reduction takes one loop, a target, its loop and a maximum or -1");
  Carry carry{step.loops[0], step.target, step.ints[0], step.ints[1], nullptr};
  const StageState& target = stages_[carry.target];
  const auto is_outer = [](const StageState& s, int loop) {
    return loop >= 0 && loop < static_cast<int>(s.loops.size()) && s.loops[loop].is_leaf() && s.loops[loop].reduce &&
           s.loops[loop].origin == Loop::Origin::kSplit && s.loops[loop].level == 0 &&
           s.loops[loop].parent == static_cast<int>(s.op.axes.size());
  };
  if (!is_outer(stage, carry.loop) || !is_outer(target, carry.target_loop))
    return Bad(stage, "a reduction is carried by the outermost loop of its first axis, which is split");
  if (step.stage == carry.target ? carry.loop != carry.target_loop
                                 : !IsComputedAt(step.stage, carry.target, carry.target_loop))
    return Bad(stage, "a reduction is carried by the loop at which it is computed");
  if (carry.maximum >= 0)
    RETURN_IF_ERROR(CarryRelative(step, &carry));
  else if (stage.op.combiner != Combiner::kMax)
    return Bad(stage, "what is carried without a maximum is one");
  stage.carry = std::move(carry);
  // The loop's stage is known first where stages are visited from consumers to producers.
  if (step.stage != step.target) {
    const auto at = std::find(topological_.begin(), topological_.end(), step.stage);
    const auto of_target = std::find(topological_.begin(), topological_.end(), step.target);
    if (of_target < at) std::rotate(of_target, at, at + 1);
  }
  return absl::OkStatus();
}

bool State::IsComputedAt(int id, int target, int loop) const {
  const StageState& stage = stages_[id];
  return stage.attach == StageState::Attach::kAt && stage.attach_stage == target &&
         stage.attach_loops == std::vector<int>{loop};
}

// A sum of exponentials relative to a maximum, or of their products by other factors.
absl::Status State::CarryRelative(const Step& step, Carry* carry) {
  const StageState& stage = stages_[step.stage];
  if (carry->maximum >= size() || !IsComputedAt(carry->maximum, carry->target, carry->target_loop))
    return Bad(stage, "its maximum is not computed at the loop that carries it");
  const StageState& maximum = stages_[carry->maximum];
  bool of_carried = maximum.op.combiner == Combiner::kMax && !maximum.carry.is_carried();
  for (int producer : Producers(carry->maximum)) of_carried &= stages_[producer].carry.is_carried_by(carry->target);
  if (!of_carried) return Bad(maximum, "it is no maximum of maxima that the same loop carries");
  if (stage.op.combiner != Combiner::kSum) return Bad(stage, "only sums are relative to a maximum");
  std::vector<Expr> factors;
  AddFactors(stage.op.body, &factors);
  for (const Expr& load : factors) {
    if (load->kind != ExprKind::kLoad || !stages_[load->buffer].op.body) continue;
    const Stage& powers = stages_[load->buffer].op;
    const Expr& power = Unconverted(powers.body);
    if (power->kind != ExprKind::kCall || power->name != "exp" || power->args[0]->kind != ExprKind::kSub) continue;
    const Expr &of = power->args[0]->args[0], &top = power->args[0]->args[1];
    bool reads = false;
    Visit(of, [&](const ExprNode& e) { reads |= e.kind == ExprKind::kLoad && e.buffer == carry->maximum; });
    if (reads || top->kind != ExprKind::kLoad || top->buffer != carry->maximum) continue;
    VarMap point;
    for (size_t d = 0; d < powers.axes.size(); ++d) point[powers.axes[d].var.get()] = load->args[d];
    std::vector<Expr> indices;
    for (const Expr& index : top->args) indices.push_back(Substitute(index, point));
    carry->maximum_load = Load(carry->maximum, top->dtype, std::move(indices));
    const bool by_term = std::any_of(stage.op.reduce_axes.begin(), stage.op.reduce_axes.end(),
                                     [&](const Axis& axis) { return UsesVar(carry->maximum_load, axis.var.get()); });
    if (by_term) continue;
    return absl::OkStatus();
  }
  return Bad(stage, "its terms are no exponentials relative to the maximum");
}

absl::Status State::Reorder(const Step& step) {
  StageState& stage = stages_[step.stage];
  std::vector<int> sorted = step.loops, have = stage.order;
  std::sort(sorted.begin(), sorted.end());
  std::sort(have.begin(), have.end());
  if (sorted != have) return Bad(stage, "a new order must name each leaf loop once");
  stage.order.assign(step.loops.begin(), step.loops.end());
  return absl::OkStatus();
}

absl::Status State::ComputeAt(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (step.target < 0 || step.target >= size() || step.target == step.stage)
    return Bad(stage, absl::StrCat("there is no stage ", step.target, " to be computed at"));
  if (step.loops.empty() || step.factors.size() != 1) return Bad(stage, "loops to be computed at are missing");
  if (stage.op.placeholder || is_output(step.stage))
    return Bad(stage, "an input or output cannot be computed at a loop");
  for (int up = step.target; up >= 0; up = stages_[up].attach_stage) {
    if (up == step.stage) return Bad(stage, "it would be computed inside itself");
    if (!stages_[up].computes()) return Bad(stage, "its target is not computed");
  }
  for (int loop : step.loops)
    if (!stages_[step.target].loops[loop].is_leaf()) return Bad(stage, "the target's loop is no leaf loop");
  stage.attach = StageState::Attach::kAt;
  stage.attach_stage = step.target;
  stage.attach_loops.assign(step.loops.begin(), step.loops.end());
  stage.attach_choice = step.factors[0];
  if (stage.memory == Memory::kGlobal) stage.memory = Memory::kLocal;
  return absl::OkStatus();
}

absl::Status State::Inline(const Step& step) {
  StageState& stage = stages_[step.stage];
  if (stage.op.placeholder || stage.op.reduces() || is_output(step.stage))
    return Bad(stage, "an input, an output or a reduction cannot be inlined");
  for (int consumer : Consumers(step.stage)) {
    Expr body = ReplaceLoads(stages_[consumer].op.body, step.stage, [&](const Expr& load) {
      VarMap map;
      for (size_t d = 0; d < stage.op.axes.size(); ++d) map[stage.op.axes[d].var.get()] = load->args[d];
      return Substitute(stage.op.body, map);
    });
    // A few stages that read the one before them twice are an exponentially large tree.
    if (IsTooLarge(TreeSizeOf(body))) return Bad(stage, "it makes what reads it too large to be inlined");
    stages_[consumer].op.body = std::move(body);
  }
  stage.attach = StageState::Attach::kInlined;
  return absl::OkStatus();
}

absl::Status State::CacheWrite(const Step& step) {
  if (stages_[step.stage].op.placeholder || step.ints.size() != 1)
    return Bad(stages_[step.stage], "a cache write takes a computed stage and a scope");
  if (!IsMemory(step.ints[0]))
    return Bad(stages_[step.stage], absl::StrCat("a cache write names the unknown memory ", step.ints[0]));
  if (static_cast<int>(stages_[step.stage].loops.size()) != stages_[step.stage].axis_count())
    return Bad(stages_[step.stage], "a cache write must come before its loops are changed");
  Stage cache = stages_[step.stage].op;
  VarMap map;
  cache.name += ".acc";
  cache.axes = FreshAxes(cache.axes, &map);
  cache.reduce_axes = FreshAxes(cache.reduce_axes, &map);
  cache.body = Substitute(cache.body, map);
  cache.unroll_axes.clear();
  const int id = AddStage(std::move(cache), step.stage);
  StageState& stage = stages_[step.stage];
  stages_[id].memory = static_cast<Memory>(step.ints[0]);
  stages_[id].prologue = stage.prologue;
  stage.op.reduce_axes.clear();
  stage.op.combiner = Combiner::kNone;
  stage.op.body = Load(id, stage.op.dtype, VarsOf(stage.op.axes));
  ResetLoops(stage);
  return absl::OkStatus();
}

absl::Status State::CacheRead(const Step& step) {
  if (step.ints.size() < 2) return Bad(stages_[step.stage], "a cache read takes a scope and readers");
  if (!IsMemory(step.ints[0]))
    return Bad(stages_[step.stage], absl::StrCat("a cache read names the unknown memory ", step.ints[0]));
  Stage cache;
  VarMap map;
  cache.name = stages_[step.stage].op.name + (step.ints[0] == 1 ? ".shared" : ".local");
  cache.dtype = stages_[step.stage].op.dtype;
  cache.axes = FreshAxes(stages_[step.stage].op.axes, &map);
  cache.body = Load(step.stage, cache.dtype, VarsOf(cache.axes));
  int first = -1;
  const std::vector<int> consumers = Consumers(step.stage);
  for (size_t i = 1; i < step.ints.size(); ++i) {
    if (std::find(consumers.begin(), consumers.end(), step.ints[i]) == consumers.end())
      return Bad(stages_[step.stage], absl::StrCat("stage ", step.ints[i], " does not read it"));
  }
  for (int id : topological_) {
    if (std::find(step.ints.begin() + 1, step.ints.end(), id) == step.ints.end()) continue;
    first = id;
    break;
  }
  const int id = AddStage(std::move(cache), first);
  stages_[id].memory = static_cast<Memory>(step.ints[0]);
  stages_[id].prologue = stages_[step.stage].prologue;
  for (size_t i = 1; i < step.ints.size(); ++i) {
    Expr& body = stages_[step.ints[i]].op.body;
    body = ReplaceLoads(body, step.stage, [&](const Expr& load) { return Load(id, load->dtype, load->args); });
  }
  return absl::OkStatus();
}

absl::Status State::Rfactor(const Step& step) {
  if (step.loops.size() != 1) return Bad(stages_[step.stage], "rfactor takes one loop");
  const Loop piece = stages_[step.stage].loops[step.loops[0]];
  const Stage op = stages_[step.stage].op;
  if (!piece.reduce || piece.origin != Loop::Origin::kSplit)
    return Bad(stages_[step.stage], "rfactor takes a piece of a split reduce axis");
  const Loop& split = stages_[step.stage].loops[piece.parent];
  if (split.origin != Loop::Origin::kAxis || split.pieces.size() > 3 || split.pieces.size() < 2)
    return Bad(stages_[step.stage], "rfactor takes a reduce axis that is split in two or three");
  for (size_t p = 1; p < split.pieces.size(); ++p) {
    const Factor& factor = stages_[step.stage].loops[split.pieces[p]].factor;
    if (!factor.is_constant() || factor.value < 1)
      return Bad(stages_[step.stage], "the factor of rfactor must be a number");
  }
  if (split.pieces.size() == 3) return RfactorMiddle(step);
  const Factor inner = stages_[step.stage].loops[split.pieces[1]].factor;
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
  const int id = AddStage(std::move(partial), step.stage);

  ReduceSlices(step.stage, id, slice_extent);
  return absl::OkStatus();
}

// The axis as three: the outer and the inner piece are reduced by the new stage, the middle one is its first axis.
absl::Status State::RfactorMiddle(const Step& step) {
  const Stage op = stages_[step.stage].op;
  const Loop& piece = stages_[step.stage].loops[step.loops[0]];
  const Loop& split = stages_[step.stage].loops[piece.parent];
  if (piece.level != 1) return Bad(stages_[step.stage], "of three pieces rfactor takes the one in the middle");
  const int64_t middle = piece.factor.value, inner = stages_[step.stage].loops[split.pieces[2]].factor.value;
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
  ReduceSlices(step.stage, AddStage(std::move(partial), step.stage), middle);
  return absl::OkStatus();
}

// The stage becomes the reduction of the partial results that another one has, by its first axis.
void State::ReduceSlices(int reduction, int partial, int64_t slice_extent) {
  StageState& stage = stages_[reduction];
  stages_[partial].prologue = stage.prologue;
  const Axis slices{MakeVar("s"), slice_extent};
  std::vector<Expr> indices = VarsOf(stage.op.axes);
  indices.insert(indices.begin(), slices.var);
  stage.op.reduce_axes = {slices};
  stage.op.body = Load(partial, stage.op.dtype, indices);
  ResetLoops(stage);
}

// Readers of a constant read a new stage instead, the last, which holds it in a layout of its own.
absl::Status State::ReadThrough(int stage, const std::vector<int>& readers, const char* ending) {
  Step read{StepKind::kCacheRead, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kGlobal)}};
  read.ints.insert(read.ints.end(), readers.begin(), readers.end());
  RETURN_IF_ERROR(CacheRead(read));
  stages_.back().op.name = UniqueName(stages_[stage].op.name + ending);
  return absl::OkStatus();
}

absl::Status State::Pack(const Step& step) {
  if (step.target < 0 || step.target >= size() || !stages_[step.target].prologue)
    return Bad(stages_[step.stage], "only a constant can be packed");
  const size_t rank = stages_[step.target].op.axes.size();
  if (step.factors.size() != rank || step.ints.size() != 2 * rank)
    return Bad(stages_[step.target], "a packed layout needs a factor and two places a dimension");
  RETURN_IF_ERROR(ReadThrough(step.target, Consumers(step.target), ".packed"));
  StageState& packed = stages_.back();
  packed.layout_factors = step.factors;
  packed.layout_order.assign(step.ints.begin(), step.ints.end());
  std::vector<int> sorted = packed.layout_order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int>(i)) return Bad(packed, "a packed layout must name each piece once");
  UpdatePrologue();
  return absl::OkStatus();
}

absl::Status State::BulkCopy(const Step& step) {
  const StageState& copy = stages_[step.stage];
  const Expr& body = copy.op.body;
  bool plain = body && body->kind == ExprKind::kLoad && copy.attach == StageState::Attach::kAt &&
               copy.memory == Memory::kShared && !copy.bulk && stages_[body->buffer].prologue &&
               stages_[body->buffer].attach == StageState::Attach::kRoot && body->args.size() == copy.op.axes.size();
  for (size_t d = 0; plain && d < body->args.size(); ++d) plain = body->args[d] == copy.op.axes[d].var;
  if (!plain) return Bad(copy, "only a plain copy of a constant in shared memory is made a tile at a time");
  if (step.factors.size() != 1) return Bad(copy, "one number is needed");
  RETURN_IF_ERROR(ReadThrough(body->buffer, {step.stage}, ".tiles"));
  stages_.back().image_of = step.stage;
  stages_[step.stage].bulk = true;
  stages_[step.stage].bulk_tiles = step.factors[0];
  return absl::OkStatus();
}

absl::Status State::RoundFactors(const Step& step) {
  const StageState& constant = stages_[step.stage];
  if (!constant.prologue || constant.attach != StageState::Attach::kRoot || constant.op.reduces() || constant.rounded ||
      constant.op.dtype != DType::kFloat32)
    return Bad(constant, "only constants of float32 are rounded at build time, once");
  int id = step.stage;
  if (constant.op.placeholder) {
    RETURN_IF_ERROR(ReadThrough(id, Consumers(id), ".rounded"));
    UpdatePrologue();
    id = size() - 1;
  }
  stages_[id].rounded = true;
  stages_[id].op.body = Call("tf32", {stages_[id].op.body});
  return absl::OkStatus();
}

absl::Status State::CallLibrary(const Step& step) {
  if (step.ints.size() != 2 || step.factors.size() != 1 || step.ints[1] < 0 || step.ints[1] > 1)
    return Bad(stages_[step.stage], "a library call takes a library, whether it is fused, and an algorithm");
  Library library{};
  for (Library known : AllLibraries())
    if (step.ints[0] == static_cast<int>(known)) library = known;
  if (library == Library{}) return Bad(stages_[step.stage], absl::StrCat("there is no library ", step.ints[0]));
  std::vector<const Stage*> ops;
  for (const StageState& stage : stages_) ops.push_back(&stage.op);
  ASSIGN_OR_RETURN(const LibraryMatch match, MatchLibrary(ops, outputs_, library, step.ints[1] == 1));
  if (match.last != step.stage || match.anchor != step.target)
    return Bad(stages_[step.stage], absl::StrCat("it is not what ", TitleOf(library), " would compute"));
  std::vector<int> taken = match.covered;
  taken.push_back(match.last);
  for (int id : taken) {
    const bool fresh = static_cast<int>(stages_[id].loops.size()) == stages_[id].axis_count();
    if (!fresh || stages_[id].attach != StageState::Attach::kRoot || stages_[id].prologue ||
        stages_[id].library != nullptr)
      return Bad(stages_[id], "it is scheduled already, so no library can compute it");
  }
  std::vector<int> operands = match.operands;
  if (match.repack_weights) {
    RETURN_IF_ERROR(CacheRead({StepKind::kCacheRead, operands[1], {}, {}, -1, {0, match.anchor}}));
    StageState& packed = stages_.back();
    packed.op.name = UniqueName(stages_[operands[1]].op.name + ".packed");
    packed.layout_factors.assign(4, Factor::Of(1));
    packed.layout_order = {6, 7, 0, 1, 2, 3, 4, 5};  // filters, rows, columns, channels
    operands[1] = size() - 1;
  }
  StageState& last = stages_[match.last];
  if (match.narrow) {
    last.op.dtype = std::get<ConvolutionCall>(match.call.what).dtype;
    for (StageState& reader : stages_) {
      if (!reader.op.body) continue;
      reader.op.body = ReplaceLoads(reader.op.body, match.last, [&](const Expr& load) {
        return Cast(load->dtype, Load(match.last, last.op.dtype, load->args));
      });
    }
  }
  for (int id : match.covered) stages_[id].attach = StageState::Attach::kInlined;
  last.library = std::make_shared<const LibraryCall>(match.call);
  last.library_algorithm = step.factors[0];
  last.library_operands = std::move(operands);
  return absl::OkStatus();
}

namespace {

std::string FactorText(const Factor& factor) {
  std::string text = factor.value != 1 || factor.is_constant() ? absl::StrCat(factor.value) : "";
  for (int16_t hole : factor.holes)
    if (hole >= 0) absl::StrAppend(&text, text.empty() ? "" : "*", "h", hole);
  return text;
}

const char* AnnotationText(Annotation annotation) {
  switch (annotation) {
    case Annotation::kNone: return "for";
    case Annotation::kUnroll: return "unroll";
    case Annotation::kVectorize: return "vectorize";
    case Annotation::kParallel: return "parallel";
    case Annotation::kBlockX: return "block";
    case Annotation::kThreadX: return "thread";
    case Annotation::kCluster: return "cluster";
    case Annotation::kThreadSet: return "thread set";
  }
  return "for";
}

}  // namespace

std::string State::ToString() const {
  std::string text;
  for (int id : topological_) {
    const StageState& stage = stages_[id];
    if (!stage.computes()) continue;
    absl::StrAppend(&text, stage.op.name);
    if (stage.attach == StageState::Attach::kAt) {
      absl::StrAppend(&text, " at ", stages_[stage.attach_stage].op.name);
      for (int loop : stage.attach_loops) absl::StrAppend(&text, " ", stages_[stage.attach_stage].loops[loop].name);
    }
    absl::StrAppend(&text, "\n");
    if (stage.library != nullptr) {
      absl::StrAppend(&text, "  by ", stage.library->ToString(), " ", FactorText(stage.library_algorithm), "\n");
      continue;
    }
    for (int loop : stage.order) {
      absl::StrAppend(&text, "  ", AnnotationText(stage.loops[loop].annotation), " ", stage.loops[loop].name);
      if (stage.loops[loop].origin == Loop::Origin::kSplit && stage.loops[loop].level > 0)
        absl::StrAppend(&text, " (", FactorText(stage.loops[loop].factor), ")");
      if (!stage.loops[loop].group.is_constant() || stage.loops[loop].group.value > 1)
        absl::StrAppend(&text, " in groups of ", FactorText(stage.loops[loop].group), " rows");
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

absl::StatusOr<State> Replay(const ComputeDag& dag, const std::vector<Step>& steps) {
  State state(dag);
  for (size_t i = 0; i < steps.size(); ++i) {
    absl::Status status = state.Apply(steps[i]);
    if (!status.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("schedule step ", i, " (", ToString(steps[i]), "): ", status.message()));
  }
  return state;
}

}  // namespace diapason
