// A flag to stop that a caller or the library raises.
#pragma once

#include <atomic>
#include <thread>

#include "base/mutex.h"

namespace diapason::api {

class StopRelay {
 public:
  // flag() becomes true at most 50 ms after *stop, which outlives this; null: only Raise raises it.
  explicit StopRelay(const std::atomic<bool>* stop);
  ~StopRelay();
  StopRelay(const StopRelay&) = delete;
  StopRelay& operator=(const StopRelay&) = delete;

  // Safe from any thread.
  void Raise() { flag_ = true; }
  const std::atomic<bool>* flag() const { return &flag_; }

 private:
  void Loop();

  const std::atomic<bool>* const stop_;
  std::atomic<bool> flag_{false};
  Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // none without `stop_`
};

}  // namespace diapason::api
