// Reading models and making search spaces takes memory and time by the model: one at a time, whoever asks.
#pragma once

#include <atomic>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace diapason {

// Safe from any thread.
class PreparationTurns {
 public:
  // Nobody else has one while it lives. REQUIRES: it does not outlive the turns.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->End();
    }

   private:
    friend class PreparationTurns;
    explicit Turn(PreparationTurns* turns) : turns_(turns) {}

    PreparationTurns* turns_;
  };

  // Of a submission, on a thread of the server. Unavailable when too many wait, or after Stop.
  absl::StatusOr<Turn> BeginSubmission();
  // Of a job. Cancelled when it is to stop.
  absl::StatusOr<Turn> BeginJob(const std::atomic<bool>& stop);
  // To be called after the `stop` of a job was set.
  void Wake();
  void Stop();

 private:
  void End();

  Mutex mutex_;
  CondVar changed_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_submissions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace diapason
