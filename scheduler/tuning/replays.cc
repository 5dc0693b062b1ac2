#include "scheduler/tuning/replays.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace diapason::tuning {

void Replays::Put(int task, TuningRecord record) {
  const uint64_t hash = record.configuration_hash;
  if (records_.try_emplace({task, hash}, std::move(record)).second) ++left_[task];
}

std::optional<TuningRecord> Replays::Take(int task, uint64_t configuration_hash) {
  auto node = records_.extract({task, configuration_hash});
  if (node.empty()) return std::nullopt;
  TuningRecord record = std::move(node.mapped());
  --left_[task];
  if (record.verified != Verified::kUnknown) taken_[record.id] = record;
  return record;
}

std::optional<TuningRecord> Replays::TakeVerdict(int64_t record) {
  auto node = taken_.extract(record);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

absl::StatusOr<int64_t> BeginningOf(const std::vector<int64_t>& runs, History& history) {
  int64_t from = std::numeric_limits<int64_t>::max();
  if (runs.empty()) return from;
  ASSIGN_OR_RETURN(const std::vector<TuningRun> all, history.Runs());
  for (const TuningRun& run : all)
    if (std::find(runs.begin(), runs.end(), run.id) != runs.end()) from = std::min(from, run.started_at);
  return from;
}

}  // namespace diapason::tuning
