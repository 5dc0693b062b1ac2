// From a task and a schedule to the loop nest.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/lower/stmt.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Applies the schedule's rewrite and steps to the task's dag and lowers the result: bounds from consumers to producers,
// storage scopes, barriers, predicates for what tiles leave over. InvalidArgument if a step does not apply (names the
// step), FailedPrecondition if a limit of the device is exceeded (names the limit and both numbers).
//
// With a `place` the output's buffer is that of the larger tensor, and what else lies there is left alone: the schedule
// and the workload are those of the task on its own. InvalidArgument if the place does not hold the output, or a
// library writes it.
absl::StatusOr<LoweredProgram> Lower(const ComputeDag& task, const Schedule& schedule, const Target& target,
                                     const DeviceFacts& facts, const OutputPlace& place = {});

}  // namespace diapason
