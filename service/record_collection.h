// Records outside a history: of the files that come with the program (share/records), or of JSON lines that a user
// names.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/history.h"
#include "db/json_line.h"
#include "scheduler/warm_start.h"
#include "service/network_assembly.h"
#include "service/target.h"

namespace diapason {

// How far the device that a record was measured on is from the one of `wanted`. 0: the same model with as many cores;
// above: another one whose schedules suit this one as well, such as another GPU of the architecture, or a processor
// with vectors of the same width (a record says that by its -mcpu). Nothing: they do not suit.
std::optional<double> DeviceDistance(const TuningRecord& record, const ResolvedTarget& wanted);

// The folder of the records that come with the program at `program` (a path, links followed): $DIAPASON_RECORDS, else
// share/diapason/records beside the program's folder. Empty: there is none.
std::string ShippedRecordsFolder(const std::string& program);

// The *.jsonl of `folder`/KIND by name, with the kind of a target ("cuda"). None where there is no such folder.
std::vector<std::string> RecordFiles(const std::string& folder, const std::string& kind);

// Calls `take` for each record of JSON lines (docs/history.md) that a build may use, that is, timed and verified ones,
// with its line as it stands. InvalidArgument names the line of `name` that is damaged.
absl::Status ReadUsableRecords(std::istream& in, const std::string& name,
                               const std::function<void(HistoryLine line, const std::string& text)>& take);

// Safe to read from any thread.
class RecordCollection {
 public:
  struct Entry {
    TuningRecord record;
    std::vector<NetworkTask> networks;  // that its workload is part of
    std::optional<TuningRun> run;
  };

  // Those of all RecordFiles for the kind of the target that suit it.
  static absl::StatusOr<RecordCollection> Shipped(const std::string& folder, const ResolvedTarget& wanted);

  // Adds what ReadUsableRecords gives, with ids from 1 in order.
  absl::Status Read(std::istream& in, const std::string& name);
  // Leaves out those that do not suit.
  void Keep(const ResolvedTarget& wanted);
  void Remove(const std::string& uuid);

  const std::vector<Entry>& entries() const { return entries_; }
  // The best for `wanted` of each workload that has one: of the nearest device; those timed to the end first; then the
  // fastest.
  RecordsByWorkload Best(const std::vector<std::string>& workload_keys, const ResolvedTarget& wanted) const;
  // All of each workload that are of the device which is nearest to `wanted`, in the order of Best.
  std::vector<TuningRecord> OfNearestDevice(const std::vector<std::string>& workload_keys,
                                            const ResolvedTarget& wanted) const;
  // What a search may begin with: of each workload the few best, in the order of Best.
  std::vector<TunedWorkload> ForSearch(const ResolvedTarget& wanted) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace diapason
