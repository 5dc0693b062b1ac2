#include "scheduler/convergence.h"

namespace diapason {

double Convergence::Fall(int64_t trials, int64_t window) const {
  const Moment* before = nullptr;
  for (const Moment& moment : moments_)
    if (moment.trials <= trials - window) before = &moment;
  if (before == nullptr || before->value <= 0) return 1;
  return (before->value - moments_.back().value) / before->value;
}

}  // namespace diapason
