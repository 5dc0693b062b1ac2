// The parts of an explanation that records and candidates of tasks have in common.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/target.h"
#include "diapason/explain.h"
#include "scheduler/space.h"

namespace diapason {

class History;

namespace api {

// What is explained: a schedule of a task.
struct ExplainedSchedule {
  const ComputeDag& dag;
  const Schedule& schedule;
  const Target& target;
  const DeviceFacts& facts;
  const Space* space;  // that the schedule's configuration is of; null: this version does not know it
};

// Sets what follows from the schedule alone: algorithm, sketch, configuration, readable forms, estimate and features.
void ExplainSchedule(const ExplainedSchedule& of, Explanation* explanation);

// ExplainRecord (explain.h) of a history that is open.
absl::StatusOr<Explanation> ExplainRecordOf(::diapason::History& history, int64_t record);

}  // namespace api
}  // namespace diapason
