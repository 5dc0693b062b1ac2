// Ctrl-C: the first one asks the command to finish, the second one ends the process at once.
#pragma once

#include <atomic>

namespace diapason {

// While one lives, the first SIGINT or SIGTERM sets a flag instead of ending the process; the second one ends it with
// code 130. One at a time.
class InterruptGuard {
 public:
  // Sets *stop to true at the first signal. `stop` outlives the guard.
  explicit InterruptGuard(std::atomic<bool>* stop);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  // True from the first signal on. Safe from any thread.
  bool requested() const;
};

}  // namespace diapason
