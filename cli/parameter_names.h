// Names of the tunable parameters of records, which a history keeps as numbers alone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/step.h"
#include "db/history.h"
#include "scheduler/space.h"

namespace diapason {

// The space that the record's candidate is from; null when this version has none of the name.
const Space* SpaceOf(const TaskSpace& spaces, const Schedule& schedule, const TuningRecord& record);

// Remembers the spaces of each workload and target, which take a while to make. Of one thread.
class ParameterNames {
 public:
  // One for each tunable parameter; empty when this version does not know them.
  std::vector<std::string> Of(const TuningRecord& record);

 private:
  const TaskSpace* SpacesOf(const TuningRecord& record);
  std::map<std::pair<std::string, std::string>, std::unique_ptr<TaskSpace>> spaces_;  // null: none can be made
};

}  // namespace diapason
