// Names of the tunable parameters of records. A history stores only their values.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/step.h"
#include "db/history.h"
#include "scheduler/space.h"

namespace diapason::api {

// The space of the record's candidate; null if this version does not have the sketch.
const Space* SpaceOf(const TaskSpace& spaces, const Schedule& schedule, const TuningRecord& record);

// Caches the space of each workload and target, since generating one takes a while. Not thread-safe.
class ParameterNames {
 public:
  // One name for each tunable parameter; empty if this version does not have the sketch.
  std::vector<std::string> Of(const TuningRecord& record);

 private:
  const TaskSpace* SpacesOf(const TuningRecord& record);
  std::map<std::pair<std::string, std::string>, std::unique_ptr<TaskSpace>> spaces_;  // null: creation failed
};

}  // namespace diapason::api
