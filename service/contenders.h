// Records that were measured to be nearly as fast as the best of their workload. In a network one of them may be the
// faster (refine_assembly.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

// By workload key, in the order in which they are tried.
using ContendersByWorkload = std::map<std::string, std::vector<TuningRecord>>;

// Of a workload's records, in any order, the few that contend with `best`: they take at most kContenderMargin times as
// long, are not refuted, and are another candidate. The fastest first, at most kContenders in all and
// kContendersOfSketch of a sketch; candidates that were measured more than once are there once. The fastest one with
// each other value of `overlap` (StepKind::kOverlap) comes first and may take kOtherOverlapMargin times as long: the
// value matters to the next kernel, which is not timed with the candidate.
inline constexpr double kContenderMargin = 1.04, kOtherOverlapMargin = 1.1;
inline constexpr int kContenders = 8, kContendersOfSketch = 4;
std::vector<TuningRecord> ContendersOf(const TuningRecord& best, std::vector<TuningRecord> records);

// The fastest records of a workload on a device, for ContendersOf; refuted ones are left out. So many of them: those
// that were stopped early come behind all others in a history's order, and most contenders are of these.
inline constexpr int64_t kFastRecords = 256;
absl::StatusOr<std::vector<TuningRecord>> FastRecords(History& history, const std::string& workload_key,
                                                      const std::string& device_model, const std::string& target);

}  // namespace diapason
