#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/apply_step.h"
#include "compiler/schedule/recurrent_tiles.h"

// All steps of a recurrence in one kernel.
namespace diapason {

absl::Status ApplyRecurrence(ScheduledStages& stages, const Step& step) {
  const StageState& output = stages.at(step.stage);
  if (step.factors.size() != 4)
    return BadStep(output, "a recurrence takes blocks, lanes, units of a thread and the place of its weights");
  if (stages.outputs() != std::vector<int>{step.stage}) return BadStep(output, "it is not the only result");
  std::vector<Stage> ops;
  for (const StageState& stage : stages.all()) {
    const bool fresh = static_cast<int>(stage.loops.size()) == stage.axis_count();
    if (!fresh || stage.attach != StageState::Attach::kRoot || stage.library != nullptr || stage.recurrence != nullptr)
      return BadStep(stage, "it is scheduled already, so it is no part of a recurrence");
    ops.push_back(stage.op);
  }
  RecurrentSchedule recurrent;
  ASSIGN_OR_RETURN(recurrent.dag, ComputeDag::Create(std::move(ops), stages.outputs()));
  absl::StatusOr<Recurrence> found = FindRecurrence(recurrent.dag);
  if (!found.ok()) return BadStep(output, absl::StrCat("it is no recurrence: ", found.status().message()));
  recurrent.recurrence = *std::move(found);
  for (int id = 0; id < stages.size(); ++id)
    if (!stages.at(id).op.placeholder && id != step.stage) stages.at(id).attach = StageState::Attach::kInlined;
  StageState& kernel = stages.at(step.stage);
  kernel.recurrence = std::make_shared<const RecurrentSchedule>(std::move(recurrent));
  kernel.recurrent_factors = step.factors;
  return absl::OkStatus();
}

}  // namespace diapason
