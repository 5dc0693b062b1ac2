// What displays of a whole history read: fast over many records, and not compared with their checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

// A measurement as overviews of many need it: without schedule, samples, configuration and workload.
struct TrialRow {
  int64_t id = 0, run_id = 0;  // run_id 0: of no run
  std::string workload_key = {}, task_name = {}, target = {}, device_model = {}, sketch = {};
  int64_t trial = 0;
  int64_t created_at = 0;             // Unix nanoseconds
  std::optional<double> median = {};  // seconds; none: it failed
  bool stopped_early = false;
  std::optional<double> predicted = {};
  std::string error_kind = {}, error_stage = {}, error_text = {};  // of a failure; the text's first 400 characters
  Verified verified = Verified::kUnknown;
};

// The part of a TrialRow that changes after it was stored.
struct TrialState {
  int64_t id = 0;
  std::optional<double> median = {};
  bool stopped_early = false;
  Verified verified = Verified::kUnknown;
  bool operator==(const TrialState&) const = default;
};

// Safe from any thread. The history outlives it. Errors are those of History::Open.
class TrialLog {
 public:
  explicit TrialLog(History& history) : database_(history.database()) {}

  // The newest `limit` measurements with an id above `after` and, of the older ones, the best of each workload, target
  // and device; by id. REQUIRES: limit >= 1.
  absl::StatusOr<std::vector<TrialRow>> Trials(int64_t after, int64_t limit);
  // Of all measurements with an id of at least `from`, by id.
  absl::StatusOr<std::vector<TrialState>> States(int64_t from);
  absl::StatusOr<int64_t> Count();
  // By network, target and device.
  absl::StatusOr<std::vector<NetworkLatency>> Latencies();
  // Differs from its last value when another History, of this process or another, has changed the file since.
  absl::StatusOr<int64_t> ChangeCounter();

 private:
  HistoryDatabase& database_;
};

}  // namespace diapason
