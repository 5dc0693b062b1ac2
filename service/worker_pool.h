// Keeps as many launched workers as there is work for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "service/launcher.h"

namespace diapason {

struct WorkerPoolOptions {
  int first_workers = 1;  // to begin with
  int min_workers = 1, max_workers = 1;
  // Workers that end by themselves (crashed, preempted, killed) and are replaced; then the pool shrinks with each.
  int max_replaced = 32;
  double shrink_after_seconds = 60;  // without work
  double poll_seconds = 2;
  // Measurements that wait or run. An error (no tracker): as before.
  std::function<absl::StatusOr<int64_t>()> demand;
  // Whether others than these workers measure too. An error: not known.
  std::function<absl::StatusOr<bool>()> others;
  // Called once, on the pool's thread, when all workers are lost, no more are replaced, and no others measure: nobody
  // will.
  std::function<void()> used_up;
};

// What should be, from what is: apart from the thread, for tests. What is there at the first step was left by an
// earlier coordinator: it stays, up to max_workers, as what this plan grew to.
class PoolPlan {
 public:
  explicit PoolPlan(const WorkerPoolOptions& options) : options_(options), wanted_(options.first_workers) {}
  struct Step {
    int start = 0;
    std::vector<std::string> stop;
    int lost = 0;  // since the last step
  };
  // `ids`: of Launcher::List; `demand`: see above, negative: not known; `now`: seconds, monotonic.
  Step Next(const std::vector<std::string>& ids, int64_t demand, double now);
  // So many were asked for.
  void Started(int count) { expected_ += count; }
  bool exhausted() const { return replaced_ >= options_.max_replaced; }
  // The last one was lost, and none comes in its place.
  bool used_up() const { return used_up_; }

 private:
  const WorkerPoolOptions& options_;
  bool begun_ = false;  // there was a first step
  int wanted_ = 0, replaced_ = 0;
  int given_up_ = 0;     // those that were lost and not replaced: not for the queue's sake either
  int expected_ = 0;     // those that should be there
  double work_at_ = -1;  // when there was work last
  bool used_up_ = false;
};

class WorkerPool {
 public:
  // Starts the thread that asks for workers, `first_workers` at first. Those with the launcher's label that an earlier
  // coordinator left are taken over. The launcher is made and used on that thread alone.
  WorkerPool(std::function<std::unique_ptr<Launcher>()> make_launcher, WorkerPoolOptions options);
  // Ends all workers, and removes what was handed to them.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Why the engine did not do what it was last asked for; OK when it did.
  absl::Status status();

 private:
  void Loop();
  absl::Status Step(Launcher& launcher);
  void LogUsedUp();

  const std::function<std::unique_ptr<Launcher>()> make_launcher_;
  const WorkerPoolOptions options_;
  PoolPlan plan_;
  bool logged_exhausted_ = false, logged_used_up_ = false;  // of the thread
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace diapason
