#include "service/preparation_turns.h"

#include "absl/status/status.h"

namespace diapason {
namespace {

// Submissions that wait for their model to be looked at, each with a thread of the server.
constexpr int kMaxWaitingSubmissions = 16;

}  // namespace

absl::StatusOr<PreparationTurns::Turn> PreparationTurns::BeginSubmission() {
  MutexLock lock(mutex_);
  if (waiting_submissions_ >= kMaxWaitingSubmissions)
    return absl::UnavailableError(
        "the service looks at other models, and too many wait already; try again in a minute");
  ++waiting_submissions_;
  changed_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !taken_; });
  --waiting_submissions_;
  if (stopping_) return absl::UnavailableError("the service stops");
  taken_ = true;
  return Turn(this);
}

absl::StatusOr<PreparationTurns::Turn> PreparationTurns::BeginJob(const std::atomic<bool>& stop) {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop || !taken_; });
  if (stop) return absl::CancelledError("stopped");
  taken_ = true;
  return Turn(this);
}

// With the lock, so that nobody looks at its `stop` before and waits after.
void PreparationTurns::Wake() {
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

void PreparationTurns::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

void PreparationTurns::End() {
  MutexLock lock(mutex_);
  taken_ = false;
  changed_.NotifyAll();
}

}  // namespace diapason
