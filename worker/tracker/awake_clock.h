// The time for deadlines and ages.
#pragma once

#include <functional>
#include <utility>

#include "worker/tracker/options.h"

namespace diapason::tracker {

// Leaves out what this process slept through: longer than TrackerOptions::stall without a look at the clock.
class AwakeClock {
 public:
  using Clock = TrackerOptions::Clock;

  explicit AwakeClock(const TrackerOptions& options)
      : now_(options.now), stall_(options.stall), last_look_(options.now()) {}

  // Never goes back.
  Clock::time_point Now() const {
    const Clock::time_point real = now_();
    if (real - last_look_ > stall_) slept_ += real - last_look_;
    last_look_ = real;
    return real - slept_;
  }

 private:
  const std::function<Clock::time_point()> now_;
  const Clock::duration stall_;
  mutable Clock::time_point last_look_;
  mutable Clock::duration slept_{};
};

}  // namespace diapason::tracker
