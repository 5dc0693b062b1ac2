// Where the records of a build come from.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"
#include "service/contenders.h"
#include "service/network_assembly.h"
#include "service/record_collection.h"
#include "service/target.h"

namespace diapason::api {

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // "history", "service", "file" or "shipped", as packages have it (PackageTask::record_source).
  virtual std::string kind() const = 0;
  // The best record of each workload that has one. `may_differ`: records of another device are better than none.
  virtual absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& workload_keys,
                                                 const ResolvedTarget& target, bool may_differ) = 0;
  // Fast records of each workload (ContendersOf); the arguments are as for Read.
  virtual absl::StatusOr<std::vector<TuningRecord>> Fast(const std::vector<std::string>& workload_keys,
                                                         const ResolvedTarget& target, bool may_differ) = 0;
  // Notes that the record makes a network wrong. What the user should know of it, one sentence; empty: nothing.
  virtual std::string Mark(const TuningRecord& record, double max_error, const std::string& evidence) = 0;
};

// Whether `history` of BuildOptions is one that can be written to, and not a file of JSON lines or an address. One that
// does not exist yet is.
bool IsHistory(const std::string& history);
// Of a history, a file of JSON lines or an address of such a file. No error for a history that does not exist: it has
// no records.
absl::StatusOr<std::unique_ptr<RecordSource>> OpenRecordSource(const std::string& history);
// The history of a service, which is connected to by the first Read.
std::unique_ptr<RecordSource> ServiceSource(const Endpoint& service);
// The records that come with the program (ShippedRecordsFolder). Their files are read by the first Read.
std::unique_ptr<RecordSource> ShippedSource();

// Several of them. A workload gets its record from the first that has a verified one.
class RecordSources {
 public:
  explicit RecordSources(std::vector<std::unique_ptr<RecordSource>> sources) : sources_(std::move(sources)) {}
  // Without those whose uuids are in `refuted`.
  absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& workload_keys, const ResolvedTarget& target,
                                         bool may_differ, const std::set<std::string>& refuted = {});
  // The verified records of all sources that contend with those that Read gave.
  absl::StatusOr<ContendersByWorkload> Contenders(const RecordsByWorkload& best, const ResolvedTarget& target,
                                                  bool may_differ, const std::set<std::string>& refuted = {});
  // Where a record that Read or Contenders gave comes from.
  RecordSource& SourceOf(const TuningRecord& record) const { return *source_of_.at(record.uuid); }

 private:
  const std::vector<std::unique_ptr<RecordSource>> sources_;
  std::map<std::string, RecordSource*> source_of_;  // by uuid
};

}  // namespace diapason::api
