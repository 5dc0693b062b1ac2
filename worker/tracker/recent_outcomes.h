// Outcomes of the last moments, for queues that ask for the same.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>

#include "worker/tracker/awake_clock.h"
#include "worker/tracker/model.h"

namespace diapason::tracker {

// Whether the outcome of a candidate that raced against `race_seconds` is one for this request as well.
bool SpeaksFor(const Request& request, const v1::MeasureResult& result, double race_seconds);

class RecentOutcomes {
 public:
  RecentOutcomes(const TrackerOptions& options, const AwakeClock& clock) : options_(options), clock_(clock) {}

  // The outcome of the last moments that speaks for the request, which its queue has not had yet; null: there is none.
  // A queue that asks again wants another measurement.
  const v1::MeasureResult* Take(const Request& request);
  // `worker_id`: who measured it; `race_seconds`: of the lease. Nothing but timings is kept.
  void Keep(const Request& request, const std::string& worker_id, const v1::MeasureResult& result, double race_seconds);
  // The outcome that is kept for this request is known to its queue.
  void NoteHad(const Request& request);
  // Nobody else is to have the word of this worker.
  void Distrust(const std::string& worker_id);
  void Forget(Clock::time_point now);

 private:
  struct Recent {
    v1::MeasureResult result;
    double race_seconds = 0;
    Clock::time_point until;
    std::string worker_id;
    std::set<uint64_t> had_by;  // numbers of queues
  };

  const TrackerOptions& options_;
  const AwakeClock& clock_;
  std::unordered_map<std::string, Recent> recent_;  // by share key
  std::deque<std::string> keys_;                    // from the oldest on
};

}  // namespace diapason::tracker
