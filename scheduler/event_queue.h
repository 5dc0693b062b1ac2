// What happened elsewhere, for the one thread that owns the state.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace diapason {

template <typename Event>
class EventQueue {
 public:
  void Push(Event event) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
  }
  // The oldest event; nothing after `timeout_s` of real time.
  std::optional<Event> Pop(double timeout_s) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return !events_.empty(); }))
      return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
};

}  // namespace diapason
