// What a history holds of a network, for programs that judge searches by it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/tensor/target.h"
#include "costmodel/cost_model.h"
#include "scheduler/tuner.h"

namespace diapason {

// A task with what was measured of it.
struct MeasuredTask {
  TuningTask task;
  std::shared_ptr<const TaskSpace> space;
  std::vector<Sample> samples;  // of candidates that the space would make today; of all devices in the history
};

// Options with the spaces and facts of a target, as the samples' tasks are named by.
TunerOptions OptionsOf(const Target& target);

// All tasks of a network that the history knows by this name ("-": of all its networks) with at least `least` samples.
// NotFound when there is none.
absl::StatusOr<std::vector<MeasuredTask>> LoadMeasuredTasks(const std::string& history, const std::string& network,
                                                            const Target& target, size_t least);

}  // namespace diapason
