// Group commit of a tracker's state (DeWitt et al. 1984, section 5.2). While one transaction is being written, later
// changes are collected for the next one. An answer is sent once the transactions with all changes that it depends on
// are written. One transaction per change would limit the tracker's throughput, since most of them write the same pages
// of the file.
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

  // `pause`: least time between the starts of two transactions. A longer one collects more changes per transaction.
  TrackerWriter(TrackerStore& store, std::chrono::milliseconds pause);
  // Writes all changes and calls all answers that were added.
  ~TrackerWriter();
  TrackerWriter(const TrackerWriter&) = delete;
  TrackerWriter& operator=(const TrackerWriter&) = delete;

  // Adds the changes of one turn; turns must be added in their order. Once these and all earlier changes are in the
  // file, or cannot be written (the tracker then continues without the file, see TrackerStore), `answers` are called on
  // the writer's thread. If there is nothing to wait for, the answers are returned instead, for the caller to call.
  // Never waits for the disk.
  Answers Add(TrackerStore::Changes changes, Answers answers);

 private:
  void Loop();

  TrackerStore& store_;
  const std::chrono::milliseconds pause_;
  Mutex mutex_;
  CondVar work_;  // signals that there are changes; not waited for during the pause
  CondVar stop_;
  std::vector<TrackerStore::Changes> changes_ ABSL_GUARDED_BY(mutex_);
  Answers answers_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false, stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace diapason
