#include "scheduler/tuning/run_clock.h"

#include <algorithm>

namespace diapason::tuning {

bool RunClock::OutOfTime(double reserve) const {
  if (options_.seconds <= 0) return false;
  return options_.clock() - started_ >= options_.seconds - std::min(reserve, options_.seconds / 2);
}

double RunClock::TakeOutcomes(size_t count) {
  const double now = options_.clock();
  const double each = (now - last_outcome_) / static_cast<double>(std::max<size_t>(1, count));
  last_outcome_ = now;
  return each;
}

}  // namespace diapason::tuning
