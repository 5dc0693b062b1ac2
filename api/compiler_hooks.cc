#include "api/compiler_hooks.h"

#include "base/check.h"
#include "compiler/schedule/rewrite.h"
#include "compiler/schedule/state.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "db/integrity.h"
#include "scheduler/candidate.h"

namespace diapason::api {

CheckHooks CompilerHooks() {
  CheckHooks hooks;
  hooks.workload_key = [](const std::string& workload) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(workload));
    return dag.workload_key();
  };
  hooks.schedule = [](const TuningRecord& record) -> absl::Status {
    ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(record.workload));
    ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
    if (!schedule.configuration.empty() && schedule.configuration != record.configuration) {
      return absl::DataLossError("its schedule was made from another configuration than the stored one");
    }
    ASSIGN_OR_RETURN(const ComputeDag rewritten, ApplyRewrite(dag, schedule.rewrite));
    return Replay(rewritten, schedule.steps).status();
  };
  hooks.configuration_hash = [](const TuningRecord& record) {
    return CandidateHash(record.sketch, record.configuration);
  };
  return hooks;
}

}  // namespace diapason::api
