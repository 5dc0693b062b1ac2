// Mutexes whose use clang checks (-Wthread-safety): ABSL_GUARDED_BY names the mutex that guards a member,
// ABSL_EXCLUSIVE_LOCKS_REQUIRED the mutex that the caller of a function must hold. absl::Mutex is not used because it
// is in a library that is built without the thread sanitizer, which therefore does not see its synchronization.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"

namespace diapason {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Tells the analysis that the mutex is held where it cannot infer this. No effect at run time.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class MutexLock;

  std::mutex mutex_;
};

// Holds a mutex until the end of its scope, except between Unlock and Lock.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

 private:
  friend class CondVar;

  std::unique_lock<std::mutex> lock_;
};

// Predicates are called with the mutex of `lock` held; a lambda that reads guarded members is annotated:
//   changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
class CondVar {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  template <typename Predicate>
  void Wait(MutexLock& lock, Predicate predicate) {
    condition_.wait(lock.lock_, std::move(predicate));
  }
  // Returns the last value of the predicate.
  template <typename Rep, typename Period, typename Predicate>
  bool WaitFor(MutexLock& lock, std::chrono::duration<Rep, Period> time, Predicate predicate) {
    return condition_.wait_for(lock.lock_, time, std::move(predicate));
  }
  template <typename Clock, typename Duration, typename Predicate>
  bool WaitUntil(MutexLock& lock, std::chrono::time_point<Clock, Duration> time, Predicate predicate) {
    return condition_.wait_until(lock.lock_, time, std::move(predicate));
  }
  // Waits for a notification or the end of the time, whichever comes first.
  template <typename Rep, typename Period>
  void WaitFor(MutexLock& lock, std::chrono::duration<Rep, Period> time) {
    condition_.wait_for(lock.lock_, time);
  }
  template <typename Clock, typename Duration>
  void WaitUntil(MutexLock& lock, std::chrono::time_point<Clock, Duration> time) {
    condition_.wait_until(lock.lock_, time);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace diapason
