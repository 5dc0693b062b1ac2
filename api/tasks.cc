#include <memory>
#include <utility>

#include "api/check.h"
#include "api/import.h"
#include "base/check.h"
#include "compiler/lower/lower.h"
#include "diapason/compiler.h"
#include "diapason/devices.h"
#include "scheduler/space.h"
#include "service/target.h"
#include "service/tune_spec.h"

namespace diapason::api {
namespace {

// An element of something, or a constant; which one may depend on anything.
bool IsMoved(const Expr& e) {
  if (e->kind == ExprKind::kSelect) return IsMoved(e->args[1]) && IsMoved(e->args[2]);
  return e->kind == ExprKind::kLoad || e->kind == ExprKind::kFloatImm || e->kind == ExprKind::kIntImm;
}

// Transposes, slices, concatenations, padding, copies.
bool OnlyMovesData(const ComputeDag& dag) {
  for (int id = 0; id < dag.size(); ++id) {
    const Stage& stage = dag.stage(id);
    if (stage.body && (stage.reduces() || !IsMoved(stage.body))) return false;
  }
  return true;
}

absl::StatusOr<Task> Describe(const ::diapason::Task& task, const ResolvedTarget& resolved) {
  ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> space,
                   TaskSpace::Create(task.dag, resolved.target, resolved.facts));
  Task described;
  described.name = task.name;
  described.count = task.weight;
  described.flops = task.dag.flops();
  described.workload = task.workload_key;
  for (int i = 0; i < space->size(); ++i) described.sketches.push_back(space->space(i).name());
  ASSIGN_OR_RETURN(const LoweredProgram lowered,
                   Lower(task.dag, space->DefaultSchedule(), resolved.target, resolved.facts));
  described.kernel_count = static_cast<int64_t>(lowered.kernels.size());
  described.moves_data = OnlyMovesData(task.dag);
  return described;
}

PlanTasks Describe(const ImportedPlan& plan) {
  PlanTasks described{plan.combination.sizes, 0, 0, PaddingOf(plan.model.padding)};
  for (const ::diapason::Task& task : plan.model.fusion.partition.tasks) {
    described.task_count += task.weight > 0 ? 1 : 0;
    described.flops += task.weight * task.dag.flops();
  }
  return described;
}

}  // namespace

absl::StatusOr<TaskList> Tasks(const Model& given, const std::string& wanted, const Hooks& hooks) {
  Model model = given;
  std::string target = wanted;
  RETURN_IF_ERROR(MoveTypeToTarget(model, target));
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(target));
  ASSIGN_OR_RETURN(std::vector<ImportedPlan> loaded, LoadPlans(model, resolved, /*with_network=*/false, hooks));
  TaskList list;
  list.target = resolved.target.ToString();
  for (const ImportedPlan& plan : loaded) list.plans.push_back(Describe(plan));
  for (const ImportedInput& input : loaded.front().model.inputs)
    list.inputs.push_back({input.name, NameOf(input.type.dtype), input.type.shape, input.symbols});
  // The tasks that Tune knows, in its order.
  const TuneWork work = MergePlans(NetworkName(model.source), std::move(loaded), list.target);
  for (const ::diapason::Task& task : work.partition.tasks) {
    RETURN_IF_ERROR(CheckStop(hooks, "tasks were listed"));
    ASSIGN_OR_RETURN(Task described, Describe(task, resolved));
    described.id = static_cast<int>(list.tasks.size()) + 1;
    list.tasks.push_back(std::move(described));
  }
  return list;
}

}  // namespace diapason::api
