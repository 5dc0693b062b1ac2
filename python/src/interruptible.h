// Calls that take long: on a thread of their own, while the calling one looks for signals, so that Ctrl-C ends them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "python/src/raise.h"

namespace diapason::python {

// One call. What Python code that it calls raises, and signals, set `stop`, and are raised when the call has ended.
class Interruptible {
 public:
  // For Hooks::stop.
  const std::atomic<bool>* stop() const { return &stop_; }

  // Calls Python code, from any thread, unless the call is to end already. Takes the interpreter's lock.
  template <typename Body>
  void CallPython(Body body) {
    if (stop_) return;
    const nanobind::gil_scoped_acquire locked;
    try {
      body();
    } catch (nanobind::python_error& error) {
      Keep(std::move(error));
    }
  }

  // The same from the thread that waits in Run, whose stack has the caller's lines. Any thread; returns at once. What
  // comes before the end of Run's body is called before Run returns.
  void CallPythonOfCaller(std::function<void()> body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(body));
    changed_.notify_all();
  }

  // Runs `body`, which returns an absl::StatusOr, and returns its value. Needs the interpreter's lock, which it gives
  // up meanwhile.
  template <typename Body>
  auto Run(Body body) {
    using Result = decltype(body());
    std::optional<Result> result;
    {
      const nanobind::gil_scoped_release unlocked;
      std::thread thread([&] {
        Result value = body();
        const std::lock_guard<std::mutex> lock(mutex_);
        result.emplace(std::move(value));
        done_ = true;
        changed_.notify_all();
      });
      while (!Wait()) LookForSignals();
      thread.join();
    }
    if (error_.has_value()) {
      error_->restore();
      nanobind::raise_python_error();
    }
    if (!result->ok())
      Raise(absl::StatusCodeToString(result->status().code()).c_str(), std::string(result->status().message()));
    return *std::move(*result);
  }

 private:
  // Calls what is to be called from this thread. Whether the body has ended.
  bool Wait() {
    std::vector<std::function<void()>> calls;
    bool done = false;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return done_ || !waiting_.empty(); });
      calls.swap(waiting_);
      done = done_;
    }
    for (const std::function<void()>& call : calls) CallPython(call);
    return done;
  }

  void LookForSignals() {
    const nanobind::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) Keep(nanobind::python_error());
  }

  // The first one counts.
  void Keep(nanobind::python_error error) {
    if (!error_.has_value()) error_.emplace(std::move(error));
    stop_ = true;
  }

  std::atomic<bool> stop_{false};
  std::optional<nanobind::python_error> error_;  // guarded by the interpreter's lock
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;                           // guarded by mutex_
  std::vector<std::function<void()>> waiting_;  // likewise
};

}  // namespace diapason::python
