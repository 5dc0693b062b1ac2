// Ctrl-C: the first one asks the command to finish, the second one ends the process at once.
#pragma once

#include <atomic>

namespace diapason {

// While a guard exists, the first SIGINT or SIGTERM sets a flag instead of terminating the process; the second one
// exits with code 130. At most one guard may exist.
class InterruptGuard {
 public:
  // The first signal sets *stop to true. REQUIRES: `stop` outlives the guard.
  explicit InterruptGuard(std::atomic<bool>* stop);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  // True from the first signal on. Safe from any thread.
  bool requested() const;
};

}  // namespace diapason
