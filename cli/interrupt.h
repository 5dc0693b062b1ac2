// Ctrl-C: the first one asks the command to finish, the second one ends the process at once.
#pragma once

#include <atomic>

namespace diapason {

// What a second signal does: ends the process with a message and code 130, or what it did before there was a guard.
enum class SecondSignal { kExit, kAsBefore };

// While a guard exists, the first SIGINT or SIGTERM sets a flag instead of terminating the process. At most one guard
// may exist.
class InterruptGuard {
 public:
  // The first signal sets *stop to true. REQUIRES: `stop` outlives the guard.
  explicit InterruptGuard(std::atomic<bool>* stop, SecondSignal second = SecondSignal::kExit);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  // True from the first signal on. Safe from any thread.
  bool requested() const;
};

}  // namespace diapason
