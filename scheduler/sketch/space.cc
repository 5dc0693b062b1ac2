#include "scheduler/space.h"

#include "absl/strings/str_cat.h"
#include "compiler/schedule/view.h"
#include "compiler/tensor/check.h"
#include "scheduler/sketch/library_space.h"
#include "scheduler/sketch/rule.h"
#include "scheduler/sketch/sketch_space.h"

namespace diapason {

absl::StatusOr<std::unique_ptr<TaskSpace>> TaskSpace::Create(const ComputeDag& dag, const Target& target,
                                                             const DeviceFacts& facts) {
  std::vector<std::unique_ptr<Space>> spaces;
  const SketchRules rules = RulesFor(target);
  const SketchContext context{target, facts};
  for (const View& view : ViewsOf(dag)) {
    if (view.name == "rows" && !target.is_gpu()) continue;  // made for copies into shared memory
    ASSIGN_OR_RETURN(const ComputeDag viewed, ApplyView(dag, view));
    for (const Draft& draft : GenerateSketches(viewed, context, rules)) {
      auto space = std::make_unique<SketchSpace>(absl::StrCat(view.ToString(), "/", draft.name()), view, draft);
      // A sketch whose least candidate exceeds a limit of the device has no candidate at all.
      Metrics metrics;
      space->Evaluate(space->Default(), &metrics);
      if (metrics.legal) spaces.push_back(std::move(space));
    }
  }
  if (spaces.empty())
    return absl::FailedPreconditionError(absl::StrCat("no schedule of task ", dag.workload_key(), " fits the device ",
                                                      facts.model, " (target ", target.ToString(), ")"));
  for (std::unique_ptr<Space>& space : LibrarySpaces(dag, context)) spaces.push_back(std::move(space));
  return std::make_unique<TaskSpace>(dag, std::move(spaces));
}

absl::StatusOr<Schedule> DefaultSchedule(const ComputeDag& dag, const Target& target, const DeviceFacts& facts) {
  ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> task, TaskSpace::Create(dag, target, facts));
  int best = -1;
  double seconds = 0;
  for (int i = 0; i < task->size(); ++i) {
    if (task->space(i).external()) continue;
    Metrics metrics;
    task->space(i).Evaluate(task->space(i).Default(), &metrics);
    if (best >= 0 && metrics.seconds >= seconds) continue;
    best = i;
    seconds = metrics.seconds;
  }
  return task->space(best).Instantiate(task->space(best).Default());
}

}  // namespace diapason
