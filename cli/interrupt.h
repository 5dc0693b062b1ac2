// Ctrl-C: the first one asks the command to finish, the second one ends the process at once.
#pragma once

namespace diapason {

// While one lives, SIGINT and SIGTERM are counted instead of ending the process; the second one ends it with code 130. One
// at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  // True from the first signal on. Safe from any thread.
  static bool requested();
};

}  // namespace diapason
