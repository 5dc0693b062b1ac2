// For lines of the log that a peer can cause as often as it likes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace diapason {

// One line a second at most of what a peer can cause as often as it likes. Safe from any thread.
class LogPacer {
 public:
  // Whether to write this one; then `more` is how many were left out since the last.
  bool Allows(uint64_t& more) {
    const int64_t now =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    int64_t last = last_;
    if (now - last < 1000 || !last_.compare_exchange_strong(last, now)) {
      ++left_out_;
      return false;
    }
    more = left_out_.exchange(0);
    return true;
  }

 private:
  std::atomic<int64_t> last_{-1000};  // steady milliseconds
  std::atomic<uint64_t> left_out_{0};
};

}  // namespace diapason
