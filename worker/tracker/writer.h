// Group commit of a tracker's state (DeWitt et al. 1984, section 5.2): while one transaction is written, what happens
// next gathers and becomes the next one, and an answer goes out when the transaction is written that holds what it
// rests on. A transaction a turn bounds a tracker at 2,600 measurements a second on the machine of docs/benchmarks.md,
// most of it for the same pages of the file again and again.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "worker/tracker/store.h"

namespace diapason {

class TrackerWriter {
 public:
  using Answers = std::vector<std::function<void()>>;

  // `pause`: between the beginnings of two transactions, at least. The longer, the more of what happens shares one.
  TrackerWriter(TrackerStore& store, std::chrono::milliseconds pause);
  // Writes and answers what it was given.
  ~TrackerWriter();
  TrackerWriter(const TrackerWriter&) = delete;
  TrackerWriter& operator=(const TrackerWriter&) = delete;

  // Takes a turn's changes, to be called in the order of the turns, and calls `answers` on its own thread once these
  // and all earlier changes are in the file, or cannot be written (then the tracker continues without it, see
  // TrackerStore). Returns the answers when there is nothing to wait for: the caller calls them. Never waits for the
  // disk.
  Answers Add(TrackerStore::Changes changes, Answers answers);

 private:
  void Loop();

  TrackerStore& store_;
  const std::chrono::milliseconds pause_;
  Mutex mutex_;
  CondVar work_;  // there is some; nobody listens, and is woken, during the pause
  CondVar stop_;
  std::vector<TrackerStore::Changes> changes_ ABSL_GUARDED_BY(mutex_);
  Answers answers_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false, stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace diapason
