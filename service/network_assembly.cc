#include "service/network_assembly.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/kernel_work.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/step.h"
#include "scheduler/objective.h"
#include "scheduler/space.h"

namespace diapason {

std::vector<std::string> KeysOfRecords(const std::vector<Task>& tasks) {
  std::vector<std::string> keys;
  for (const Task& task : tasks) {
    keys.push_back(task.workload_key);
    if (!task.unbounded_key.empty()) keys.push_back(task.unbounded_key);
  }
  return keys;
}

const TuningRecord* UsableRecord(const RecordsByWorkload& records, const Task& task) {
  const TuningRecord* best = nullptr;
  for (const std::string& key : {task.workload_key, task.unbounded_key}) {
    const auto found = records.find(key);
    if (found == records.end() || found->second.verified != Verified::kOk) continue;
    const bool faster = best == nullptr || MedianSeconds(*found->second.timing()) < MedianSeconds(*best->timing());
    if (faster) best = &found->second;
  }
  return best;
}

double SecondsOfTasks(const Assembly& assembly) {
  double sum = 0;
  for (size_t i = 0; i < assembly.records.size(); ++i) {
    if (!assembly.records[i].has_value()) return 0;
    sum += assembly.partition.tasks[i].weight * MedianSeconds(*assembly.records[i]->timing());
  }
  return sum;
}

bool IsByLibrary(const TuningRecord& record) {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(record.schedule);
  return schedule.ok() && schedule->sketch.rfind("library/", 0) == 0;
}

absl::StatusOr<Assembly> Assemble(const Network& network, const FusionChoices& fusion,
                                  const RecordsByWorkload& records) {
  std::vector<double> seconds;
  std::vector<bool> by_library;
  for (const Task& task : fusion.partition.tasks) {
    const TuningRecord* record = UsableRecord(records, task);
    seconds.push_back(record != nullptr ? MedianSeconds(*record->timing()) : 0);
    by_library.push_back(record != nullptr && IsByLibrary(*record));
  }
  return AssembleAs(
      network, fusion, records,
      FastestAlternatives(fusion, seconds, kWorthAnotherAlternative, [&](const FusionAlternative& alternative) {
        return !alternative.writes_in_place || std::none_of(alternative.tasks.begin(), alternative.tasks.end(),
                                                            [&](const auto& one) { return by_library[one.first]; });
      }));
}

absl::StatusOr<Assembly> AssembleAs(const Network& network, const FusionChoices& fusion,
                                    const RecordsByWorkload& records, std::vector<int> alternatives) {
  Assembly assembly;
  assembly.alternatives = std::move(alternatives);
  for (size_t b = 0; b < assembly.alternatives.size(); ++b) {
    const ChoicePoint& point = fusion.choice_points[b];
    if (assembly.alternatives[b] != 0)
      assembly.other.emplace_back(point.name, point.alternatives[assembly.alternatives[b]].name);
  }
  ASSIGN_OR_RETURN(assembly.partition, PartitionAs(network, fusion, assembly.alternatives));
  for (const Task& task : assembly.partition.tasks) {
    const TuningRecord* record = UsableRecord(records, task);
    assembly.records.push_back(record != nullptr ? std::optional<TuningRecord>(*record) : std::nullopt);
  }
  return assembly;
}

// One program, and what became of it.
struct AssemblyCompiler::Work {
  std::string key;
  const Task* task = nullptr;
  OutputPlace place;
  const TuningRecord* record = nullptr;  // null: the fallback schedule
  absl::StatusOr<TaskKernels> kernels = absl::UnknownError("not compiled");
};

namespace {

absl::StatusOr<TaskKernels> CompileSchedule(const Task& task, const OutputPlace& place, const Schedule& schedule,
                                            const ResolvedTarget& target, double timeout) {
  ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(task.dag, schedule, target.target, target.facts, place));
  TaskKernels kernels;
  ASSIGN_OR_RETURN(kernels.program, CompileProgram(lowered, target.target, timeout));
  for (const KernelFunc& kernel : lowered.kernels) kernels.work.push_back(WorkOf(kernel));
  kernels.schedule = absl::StrCat(schedule.sketch, " [", absl::StrJoin(schedule.configuration, " "), "]");
  return kernels;
}

absl::StatusOr<TaskKernels> CompileDefault(const Task& task, const OutputPlace& place, const ResolvedTarget& target,
                                           double timeout) {
  ASSIGN_OR_RETURN(const Schedule schedule, DefaultSchedule(task.dag, target.target, target.facts));
  ASSIGN_OR_RETURN(TaskKernels kernels, CompileSchedule(task, place, schedule, target, timeout));
  kernels.schedule = "default: " + kernels.schedule;
  return kernels;
}

absl::StatusOr<TaskKernels> CompileRecord(const Task& task, const OutputPlace& place, const TuningRecord& record,
                                          const ResolvedTarget& target, double timeout) {
  ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
  ASSIGN_OR_RETURN(TaskKernels kernels, CompileSchedule(task, place, schedule, target, timeout));
  kernels.record = record.id;
  kernels.record_uuid = record.uuid;
  kernels.estimated_seconds = MedianSeconds(*record.timing());
  return kernels;
}

}  // namespace

void AssemblyCompiler::Run(Work& work) const {
  work.kernels = work.record != nullptr ? CompileRecord(*work.task, work.place, *work.record, target_, timeout_)
                                        : CompileDefault(*work.task, work.place, target_, timeout_);
}

AssemblyCompiler::Work AssemblyCompiler::WorkFor(const Assembly& assembly, const PlacedTask& placed,
                                                 const TuningRecord* record) const {
  if (record != nullptr && unusable_.contains(record->uuid)) record = nullptr;
  const Task& task = assembly.partition.tasks[placed.task];
  return {absl::StrCat(task.workload_key, "\n", placed.place.ToString(), "\n", placed.place.elements, "\n",
                       record != nullptr ? record->uuid : ""),
          &task, placed.place, record};
}

absl::Status AssemblyCompiler::RunAll(std::vector<Work> all) {
  std::set<std::string> keys;
  std::erase_if(all, [&](const Work& work) { return known_.contains(work.key) || !keys.insert(work.key).second; });
  std::atomic<size_t> next{0};
  {
    std::vector<std::jthread> threads;
    const size_t count = std::min<size_t>(all.size(), std::max(1u, std::thread::hardware_concurrency()));
    for (size_t i = 0; i < count; ++i)
      threads.emplace_back([&] {
        for (size_t w = next++; w < all.size(); w = next++) Run(all[w]);
      });
  }
  for (Work& work : all) {
    if (work.kernels.ok()) {
      known_[work.key] = *std::move(work.kernels);
    } else if (work.record != nullptr) {
      unusable_.emplace(work.record->uuid, std::string(work.kernels.status().message()));
    } else {
      return absl::Status(
          work.kernels.status().code(),
          absl::StrCat("task ", work.task->name, " cannot be built: ", work.kernels.status().message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TaskKernels>> AssemblyCompiler::Compile(const Assembly& assembly,
                                                                   const std::vector<bool>& in_place) {
  const std::vector<PlacedTask>& programs = assembly.partition.programs;
  const auto work_for = [&](const PlacedTask& placed) {
    const std::optional<TuningRecord>& record = assembly.records[placed.task];
    return WorkFor(assembly, placed, in_place[placed.task] && record.has_value() ? &*record : nullptr);
  };
  // A second time for records that turn out to be unusable.
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<Work> all;
    for (const PlacedTask& placed : programs) all.push_back(work_for(placed));
    RETURN_IF_ERROR(RunAll(std::move(all)));
  }
  std::vector<TaskKernels> kernels;
  for (const PlacedTask& placed : programs) kernels.push_back(known_.at(work_for(placed).key));
  return kernels;
}

absl::Status AssemblyCompiler::CompileEach(const Assembly& assembly, const std::vector<TaskRecord>& replacements) {
  std::vector<Work> all;
  for (const TaskRecord& replacement : replacements) {
    if (unusable_.contains(replacement.record.uuid)) continue;
    for (const PlacedTask& placed : assembly.partition.programs)
      if (placed.task == replacement.task) all.push_back(WorkFor(assembly, placed, &replacement.record));
  }
  return RunAll(std::move(all));
}

}  // namespace diapason
