// What a network is made of: how it is partitioned, and which record each task takes, by what a history says.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/build_package.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"
#include "db/history.h"
#include "service/target.h"

namespace diapason {

// Of the records of a network's workloads, by workload key, at most one each.
using RecordsByWorkload = std::map<std::string, TuningRecord>;

// The keys of workloads whose records fit tasks, as UsableRecord has them.
std::vector<std::string> KeysOfRecords(const std::vector<Task>& tasks);

// The record of a task, or of the same one without bounds of factors, if it may be used: only a verified one may
// (docs/architecture.md, decision 4). Of two the faster one. Null: none.
const TuningRecord* UsableRecord(const RecordsByWorkload& records, const Task& task);

struct Assembly {
  std::vector<int> alternatives;  // by choice point
  std::vector<std::pair<std::string, std::string>>
      other;  // choice points with another alternative than the default, and which
  Partition partition;
  std::vector<std::optional<TuningRecord>> records;  // by task; nothing: the fallback schedule
};

// A record for a task of an assembly.
struct TaskRecord {
  int task = 0;
  TuningRecord record;
};

// The sum of the times of its tasks' records, each as often as the network holds the task; 0 when a task has none.
double SecondsOfTasks(const Assembly& assembly);

// At each choice point the alternative whose records take least time together; the default where the records do not
// say.
// Libraries write no parts of larger tensors.
absl::StatusOr<Assembly> Assemble(const Network& network, const FusionChoices& fusion,
                                  const RecordsByWorkload& records);

// With these alternatives, by choice point.
absl::StatusOr<Assembly> AssembleAs(const Network& network, const FusionChoices& fusion,
                                    const RecordsByWorkload& records, std::vector<int> alternatives);

// Whether a record's kernels are a library's, which write no parts of larger tensors.
bool IsByLibrary(const TuningRecord& record);

// Compiles the programs of a network in this process, on all cores, and keeps them: the next call compiles what
// changed. One thread at a time.
class AssemblyCompiler {
 public:
  AssemblyCompiler(const ResolvedTarget& target, double timeout_seconds)
      : target_{target.target.ForKernels(), target.device, target.norms, target.facts}, timeout_(timeout_seconds) {}

  // The kernels of each of the partition's programs: of the task's record where `in_place` (by task) is true, else, and
  // where that record cannot be built here, of the fallback schedule. The error names the task that cannot be built at
  // all.
  absl::StatusOr<std::vector<TaskKernels>> Compile(const Assembly& assembly, const std::vector<bool>& in_place);
  // Compiles the same with each of the records in its task's place, side by side, for later calls.
  absl::Status CompileEach(const Assembly& assembly, const std::vector<TaskRecord>& replacements);
  // Why records were not used so far, by their uuids.
  const std::map<std::string, std::string>& unusable() const { return unusable_; }

 private:
  struct Work;
  Work WorkFor(const Assembly& assembly, const PlacedTask& placed, const TuningRecord* record) const;
  void Run(Work& work) const;
  // Compiles what is not known yet, and takes what came of it. The error of the first fallback schedule that fails.
  absl::Status RunAll(std::vector<Work> all);

  const ResolvedTarget target_;
  const double timeout_;
  std::map<std::string, TaskKernels> known_;  // by task, place and record
  std::map<std::string, std::string> unusable_;
};

}  // namespace diapason
