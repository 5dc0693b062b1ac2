#include "bench/history_samples.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/task_state.h"

namespace diapason {

TunerOptions OptionsOf(const Target& target) {
  TunerOptions options;
  options.target = target;
  options.facts = DefaultFacts(target);
  options.make_space = TaskSpace::Create;
  return options;
}

absl::StatusOr<std::vector<MeasuredTask>> LoadMeasuredTasks(const std::string& path, const std::string& name,
                                                            const Target& target, size_t least) {
  ASSIGN_OR_RETURN(auto history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const HistoryInfo info, history->Info());
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> linked, history->NetworkTasks(name == "-" ? "" : name));
  const TunerOptions options = OptionsOf(target);
  std::vector<MeasuredTask> tasks;
  for (const NetworkTask& task : linked) {
    auto same = [&](const MeasuredTask& other) { return other.task.workload_key == task.workload_key; };
    if (std::any_of(tasks.begin(), tasks.end(), same)) continue;  // of two networks
    ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(task.workload));
    const TuningTask tuning{task.task_name, dag, task.workload_key, {{name, task.weight}}};
    ASSIGN_OR_RETURN(const auto state, TaskState::Create(0, tuning, options));
    MeasuredTask measured{tuning, nullptr, {}};
    for (const auto& device : info.devices) {
      ASSIGN_OR_RETURN(const auto records, history->ForWorkload(task.workload_key, device.model));
      for (const TuningRecord& record : records)
        if (Target::Parse(record.target).value_or(Target()).caches == target.caches)
          state->Restore(record, &measured.samples);
    }
    if (measured.samples.size() < least) continue;
    ASSIGN_OR_RETURN(measured.space, TaskSpace::Create(dag, options.target, options.facts));
    tasks.push_back(std::move(measured));
  }
  if (tasks.empty())
    return absl::NotFoundError(
        absl::StrCat(path, " holds no trials of ", name, ": tune it first, on ", target.ToString()));
  return tasks;
}

}  // namespace diapason
