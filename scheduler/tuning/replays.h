// Runs that were interrupted are resumed by replaying them: the search proposes as it did then, and gets its results
// from the history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason::tuning {

class Replays {
 public:
  explicit Replays(size_t tasks) : left_(tasks) {}

  // A record that is to be replayed; the first one of a configuration counts.
  void Put(int task, TuningRecord record);
  bool empty() const { return records_.empty(); }
  // How many of a task are not proposed yet.
  int64_t left(int task) const { return left_[task]; }
  // The result of a proposal, once.
  std::optional<TuningRecord> Take(int task, uint64_t configuration_hash);
  // A record that was taken, if it has a verdict, once.
  std::optional<TuningRecord> TakeVerdict(int64_t record);

 private:
  std::map<std::pair<int, uint64_t>, TuningRecord> records_;  // by task and configuration: what is not proposed yet
  std::vector<int64_t> left_;                                 // of each task: how many these are
  std::map<int64_t, TuningRecord> taken_;                     // by record: those with a verdict
};

// When the first of these runs of the history began: Unix nanoseconds; the end of time when there are none.
absl::StatusOr<int64_t> BeginningOf(const std::vector<int64_t>& runs, History& history);

}  // namespace diapason::tuning
