// The state of tuning runs that the history does not hold, in a file beside it (H.db.rounds), so that a tuner that was
// killed resumes where it stopped:
// - the candidates that were proposed and are not measured yet; measured ones are in the history,
// - the state that each task's search carries from round to round, and what the search that was running knew when it
//   began, so that it proposes the same candidates again.
//
//   table     | key                                     | holds
//   trials    | id                                      | run, workload_key, target, device_model, round, sketch,
//             |                                         | configuration (a JSON list), predicted
//   searches  | run, workload_key, target, device_model | SearchMemory as JSON
//   begun     | run                                     | BegunSearch
//   runs      | run                                     | when it began, Unix nanoseconds
//
// The file's application_id is "Dprd", user_version the version of the tables. One of version 1, which had `trials`
// alone, is brought up to date; one of a newer version is refused. What was added survives the death of the process; a
// power cut may lose the last moments.
//
// A coordinator service whose history is in PostgreSQL keeps the same tables there (db/service_tables.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/locked_database.h"

namespace diapason {

struct ProposedTrial {
  std::string workload_key, target, device_model;
  int64_t round = 0;  // of the search of its task, from 1; 0: before the first
  std::string sketch;
  std::vector<int32_t> configuration;
  std::optional<double> predicted;
};

// What the search of a task carries from one round to the next, beside what was measured (scheduler/evolution.h).
struct SearchMemory {
  std::string workload_key, target, device_model;
  int64_t rounds = 0;
  std::vector<std::pair<std::string, std::vector<int32_t>>> samples;  // sketch and configuration, the oldest first
  std::vector<std::string> listed, large;                             // sketches
  bool exhausted = false;                                             // it found less than it was asked for
  bool operator==(const SearchMemory&) const = default;
};

// A search that has begun and not ended: what it knows are the history's records up to `known`, and its model those up
// to `trained` (0: none).
struct BegunSearch {
  std::string workload_key, target, device_model;
  int64_t asked = 0;
  int64_t known = 0, trained = 0;
  bool operator==(const BegunSearch&) const = default;
};

// Safe from any thread, and from several processes.
class RoundStore {
 public:
  // Makes the file when there is none. FailedPrecondition: another file, or of another version; otherwise as
  // History::Open.
  static absl::StatusOr<std::unique_ptr<RoundStore>> Open(const std::string& path);
  // In the tables of a service. REQUIRES: `db` is OpenServiceTables'.
  static std::unique_ptr<RoundStore> OpenShared(std::unique_ptr<Database> db);
  ~RoundStore();

  // Adds a round of one task to what the run has proposed. Rounds of the task that are older than the last few are
  // forgotten: all that was in them is measured.
  absl::Status Add(const std::string& run, const std::vector<ProposedTrial>& trials);
  // As Add, of the search that had begun, which has ended with this; the trials may be none.
  absl::Status End(const std::string& run, const std::vector<ProposedTrial>& trials, const SearchMemory& memory);
  // One search of a run at a time: replaces the one before.
  absl::Status Begin(const std::string& run, const BegunSearch& search);
  // When the run of this name began: `now` the first time.
  absl::StatusOr<int64_t> Began(const std::string& run, int64_t now);

  // In the order of Add.
  absl::StatusOr<std::vector<ProposedTrial>> Load(const std::string& run);
  absl::StatusOr<std::optional<BegunSearch>> LoadBegun(const std::string& run);
  absl::StatusOr<std::vector<SearchMemory>> LoadMemories(const std::string& run);
  // All of the above.
  absl::Status Forget(const std::string& run);

 private:
  RoundStore(std::unique_ptr<Database> db, std::string prefix);
  absl::Status Prepare();
  absl::Status Damaged(const Database& db, const char* how) const;
  // `again`: some may be there already.
  absl::Status AddTrials(Database& db, const std::string& run, const std::vector<ProposedTrial>& trials, bool again);

  const std::string prefix_;  // of the tables' names
  LockedDatabase db_;
};

}  // namespace diapason
