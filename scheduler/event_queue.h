// What happened elsewhere, for the one thread that owns the state.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace diapason {

template <typename Event>
class EventQueue {
 public:
  void Push(Event event) {
    {
      MutexLock lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.NotifyOne();
  }
  // The oldest event; nothing after `timeout_s` of real time.
  std::optional<Event> Pop(double timeout_s) {
    MutexLock lock(mutex_);
    if (!arrived_.WaitFor(lock, std::chrono::duration<double>(timeout_s),
                          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !events_.empty(); }))
      return std::nullopt;
    std::optional<Event> event(std::move(events_.front()));
    events_.pop_front();
    return event;
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace diapason
