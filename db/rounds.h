// What tuners have proposed and not all measured yet: a file beside the history (H.db.rounds), so that a tuner that was
// killed goes on with the very candidates that were under way. The records of what was measured are in the history.
//
// Table `trials`: run, workload_key, target, device_model, round, position, sketch, decisions (a JSON list), predicted. The
// file's application_id is "Dprd", user_version the version of the table; a file of another version is refused. What was
// added survives the death of the process; a power cut may lose the last moments.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

class Database;

struct ProposedTrial {
  std::string workload_key, target, device_model;
  int64_t round = 0;  // of the search of its task, from 1; 0: before the first
  std::string sketch;
  std::vector<int32_t> decisions;
  std::optional<double> predicted;
};

// Safe from any thread, and from several processes.
class RoundStore {
 public:
  // Makes the file when there is none. FailedPrecondition: another file, or of another version; otherwise as
  // History::Open.
  static absl::StatusOr<std::unique_ptr<RoundStore>> Open(const std::string& path);
  ~RoundStore();

  // Adds a round of one task to what the run has proposed. Rounds of the task that are older than the last few are
  // forgotten: all that was in them is measured.
  absl::Status Add(const std::string& run, const std::vector<ProposedTrial>& trials);
  // In the order of Add.
  absl::StatusOr<std::vector<ProposedTrial>> Load(const std::string& run);
  absl::Status Forget(const std::string& run);

 private:
  explicit RoundStore(std::unique_ptr<Database> db);
  std::mutex mutex_;
  std::unique_ptr<Database> db_;
};

}  // namespace diapason
