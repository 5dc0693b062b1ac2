#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/apply_step.h"
#include "compiler/schedule/invariant.h"
#include "compiler/tensor/tree_size.h"

// Steps that say where a stage is computed.
namespace diapason {
namespace {

// What is multiplied in a term that may be zero under a condition.
void AddFactors(const Expr& e, std::vector<Expr>* factors) {
  const Expr& term = Unconverted(e);
  const bool condition =
      term->kind == ExprKind::kSelect && term->args[2]->kind == ExprKind::kFloatImm && term->args[2]->fvalue == 0;
  if (condition) return AddFactors(term->args[1], factors);
  if (term->kind != ExprKind::kMul) return factors->push_back(term);
  for (const Expr& factor : term->args) AddFactors(factor, factors);
}

// exp(score - top), or exp(scale * (score - top)) with a scale that is known before the kernel starts.
struct RelativePower {
  Expr score, top, scale;  // scale: null where there is none
};

std::optional<RelativePower> RelativePowerOf(const ScheduledStages& stages, const Expr& power) {
  if (power->kind != ExprKind::kCall || power->name != "exp") return std::nullopt;
  const Expr& exponent = power->args[0];
  if (exponent->kind == ExprKind::kSub) return RelativePower{exponent->args[0], exponent->args[1], nullptr};
  if (exponent->kind != ExprKind::kMul) return std::nullopt;
  for (int i : {0, 1}) {
    const Expr &difference = exponent->args[i], &scale = exponent->args[1 - i];
    if (difference->kind != ExprKind::kSub) continue;
    if (IsInvariant(scale, [&](int id) -> const Stage& { return stages.at(id).op; }))
      return RelativePower{difference->args[0], difference->args[1], scale};
  }
  return std::nullopt;
}

// Whether all that is carried relative to the maximum so far has exponentials of this scale.
bool HasScale(const ScheduledStages& stages, int maximum, const Expr& scale) {
  for (int id = 0; id < stages.size(); ++id) {
    const Carry& other = stages.at(id).carry;
    if (!other.is_carried() || other.maximum != maximum) continue;
    if ((other.scale == nullptr) != (scale == nullptr) || (scale != nullptr && !Equal(other.scale, scale)))
      return false;
  }
  return true;
}

// A sum of exponentials relative to a maximum, or of their products by other factors.
absl::Status CarryRelative(const ScheduledStages& stages, const Step& step, Carry* carry) {
  const StageState& stage = stages.at(step.stage);
  if (carry->maximum >= stages.size() || !stages.IsComputedAt(carry->maximum, carry->target, carry->target_loop))
    return BadStep(stage, "its maximum is not computed at the loop that carries it");
  const StageState& maximum = stages.at(carry->maximum);
  bool of_carried = maximum.op.combiner == Combiner::kMax && !maximum.carry.is_carried();
  for (int producer : stages.Producers(carry->maximum))
    of_carried &= stages.at(producer).carry.is_carried_by(carry->target);
  if (!of_carried) return BadStep(maximum, "it is no maximum of maxima that the same loop carries");
  if (stage.op.combiner != Combiner::kSum) return BadStep(stage, "only sums are relative to a maximum");
  std::vector<Expr> factors;
  AddFactors(stage.op.body, &factors);
  for (const Expr& load : factors) {
    if (load->kind != ExprKind::kLoad || !stages.at(load->buffer).op.body) continue;
    const Stage& powers = stages.at(load->buffer).op;
    const std::optional<RelativePower> power = RelativePowerOf(stages, Unconverted(powers.body));
    if (!power) continue;
    const Expr& top = power->top;
    bool reads = false;
    Visit(power->score, [&](const ExprNode& e) { reads |= e.kind == ExprKind::kLoad && e.buffer == carry->maximum; });
    if (reads || top->kind != ExprKind::kLoad || top->buffer != carry->maximum) continue;
    if (!HasScale(stages, carry->maximum, power->scale)) continue;
    carry->scale = power->scale;
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
  return BadStep(stage, "its terms are no exponentials relative to the maximum");
}

}  // namespace

absl::Status ApplyComputeAt(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.target < 0 || step.target >= stages.size() || step.target == step.stage)
    return BadStep(stage, absl::StrCat("there is no stage ", step.target, " to be computed at"));
  if (step.loops.empty() || step.factors.size() != 1) return BadStep(stage, "loops to be computed at are missing");
  if (stage.op.placeholder || stages.is_output(step.stage))
    return BadStep(stage, "an input or output cannot be computed at a loop");
  for (int up = step.target; up >= 0; up = stages.at(up).attach_stage) {
    if (up == step.stage) return BadStep(stage, "it would be computed inside itself");
    if (!stages.at(up).computes()) return BadStep(stage, "its target is not computed");
  }
  for (int loop : step.loops)
    if (!stages.at(step.target).loops[loop].is_leaf()) return BadStep(stage, "the target's loop is no leaf loop");
  stage.attach = StageState::Attach::kAt;
  stage.attach_stage = step.target;
  stage.attach_loops.assign(step.loops.begin(), step.loops.end());
  stage.attach_choice = step.factors[0];
  if (stage.memory == Memory::kGlobal) stage.memory = Memory::kLocal;
  return absl::OkStatus();
}

absl::Status ApplyInline(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (stage.op.placeholder || stage.op.reduces() || stages.is_output(step.stage))
    return BadStep(stage, "an input, an output or a reduction cannot be inlined");
  for (int consumer : stages.Consumers(step.stage)) {
    Expr body = ReplaceLoads(stages.at(consumer).op.body, step.stage, [&](const Expr& load) {
      VarMap map;
      for (size_t d = 0; d < stage.op.axes.size(); ++d) map[stage.op.axes[d].var.get()] = load->args[d];
      return Substitute(stage.op.body, map);
    });
    // A few stages that read the one before them twice are an exponentially large tree.
    if (IsTooLarge(TreeSizeOf(body))) return BadStep(stage, "it makes what reads it too large to be inlined");
    stages.at(consumer).op.body = std::move(body);
  }
  stage.attach = StageState::Attach::kInlined;
  return absl::OkStatus();
}

absl::Status ApplyCarry(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.loops.size() != 1 || step.ints.size() != 2 || step.target < 0 || step.target >= stages.size())
    return BadStep(stage, "to carry a reduction takes one loop, a target, its loop and a maximum or -1");
  Carry carry{step.loops[0], step.target, step.ints[0], step.ints[1], nullptr, nullptr};
  const StageState& target = stages.at(carry.target);
  const auto is_outer = [](const StageState& s, int loop) {
    return loop >= 0 && loop < static_cast<int>(s.loops.size()) && s.loops[loop].is_leaf() && s.loops[loop].reduce &&
           s.loops[loop].origin == Loop::Origin::kSplit && s.loops[loop].level == 0 &&
           s.loops[loop].parent == static_cast<int>(s.op.axes.size());
  };
  if (!is_outer(stage, carry.loop) || !is_outer(target, carry.target_loop))
    return BadStep(stage, "a reduction is carried by the outermost loop of its first axis, which is split");
  if (step.stage == carry.target ? carry.loop != carry.target_loop
                                 : !stages.IsComputedAt(step.stage, carry.target, carry.target_loop))
    return BadStep(stage, "a reduction is carried by the loop at which it is computed");
  if (carry.maximum >= 0)
    RETURN_IF_ERROR(CarryRelative(stages, step, &carry));
  else if (stage.op.combiner != Combiner::kMax)
    return BadStep(stage, "what is carried without a maximum is one");
  stage.carry = std::move(carry);
  // The loop's stage is known first where stages are visited from consumers to producers.
  if (step.stage != step.target) stages.MoveBefore(step.stage, step.target);
  return absl::OkStatus();
}

absl::Status ApplySetScope(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.ints.size() != 1 || !(IsMemory(step.ints[0]) || step.ints[0] == static_cast<int32_t>(Memory::kLanes)))
    return BadStep(stage, "one scope is needed");
  stage.memory = static_cast<Memory>(step.ints[0]);
  return absl::OkStatus();
}

}  // namespace diapason
