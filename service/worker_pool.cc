#include "service/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

// Measurements that keep a worker busy: it builds some ahead of the one that runs.
constexpr int64_t kWorkOfOne = 4;

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

PoolPlan::Step PoolPlan::Next(const std::vector<std::string>& ids, int64_t demand, double now) {
  Step step;
  const int there = static_cast<int>(ids.size());
  if (!std::exchange(begun_, true)) {
    const int first = options_.first_workers;
    wanted_ = std::clamp(there, first, std::max(first, options_.max_workers));
  }
  step.lost = std::max(0, expected_ - there);
  if (work_at_ < 0 || demand != 0) work_at_ = now;
  const int most = options_.max_workers - given_up_;
  if (demand > 0) {
    const int64_t useful = (demand + kWorkOfOne - 1) / kWorkOfOne;
    wanted_ = static_cast<int>(std::clamp<int64_t>(useful, wanted_, std::max(wanted_, most)));
  } else if (now - work_at_ >= options_.shrink_after_seconds) {
    wanted_ = std::min(options_.min_workers, std::max(0, most));
  }
  // What was lost counts against the limit when it is replaced; the first ones do not.
  const int replacing = std::min(step.lost, std::max(0, wanted_ - there));
  const int allowed = std::min(replacing, options_.max_replaced - replaced_);
  replaced_ += allowed;
  step.start = std::max(0, wanted_ - there - (replacing - allowed));
  wanted_ -= replacing - allowed;
  given_up_ += replacing - allowed;
  for (int i = std::max(wanted_, 0); i < there; ++i) step.stop.push_back(ids[i]);
  expected_ = std::min(there, std::max(wanted_, 0));
  const bool none = there == 0 && step.start == 0;
  used_up_ = none && exhausted() && (used_up_ || step.lost > 0);
  return step;
}

WorkerPool::WorkerPool(std::function<std::unique_ptr<Launcher>()> make_launcher, WorkerPoolOptions options)
    : make_launcher_(std::move(make_launcher)), options_(std::move(options)), plan_(options_) {
  thread_ = std::thread([this] { Loop(); });
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

absl::Status WorkerPool::status() {
  MutexLock lock(mutex_);
  return status_;
}

absl::Status WorkerPool::Step(Launcher& launcher) {
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, launcher.List());
  const absl::StatusOr<int64_t> demand = options_.demand();
  const PoolPlan::Step step = plan_.Next(ids, demand.value_or(-1), Seconds());
  if (step.lost > 0) LogEvent(LogLevel::kWarning, "workers_lost", {{"workers", std::to_string(step.lost)}});
  if (plan_.exhausted() && !std::exchange(logged_exhausted_, true)) {
    LogEvent(LogLevel::kError, "workers_not_replaced",
             {{"why", std::to_string(options_.max_replaced) + " were lost already"}});
  }
  if (plan_.used_up() && !logged_used_up_) LogUsedUp();
  if (step.start > 0) {
    LogEvent(LogLevel::kInfo, "workers_start", {{"workers", std::to_string(step.start)}});
    RETURN_IF_ERROR(launcher.Start(step.start));
    plan_.Started(step.start);
  }
  if (step.stop.empty()) return absl::OkStatus();
  LogEvent(LogLevel::kInfo, "workers_stop", {{"workers", std::to_string(step.stop.size())}});
  return launcher.Stop(step.stop);
}

void WorkerPool::LogUsedUp() {
  const absl::StatusOr<bool> others = options_.others ? options_.others() : false;
  if (!others.ok() || *others) return;
  logged_used_up_ = true;
  LogEvent(LogLevel::kError, "no_worker_left", {});
  if (options_.used_up) options_.used_up();
}

void WorkerPool::Loop() {
  const std::unique_ptr<Launcher> launcher = make_launcher_();
  MutexLock lock(mutex_);
  while (!stopping_) {
    lock.Unlock();
    const absl::Status status = Step(*launcher);
    lock.Lock();
    if (!status.ok() && status != status_)
      LogEvent(LogLevel::kError, "workers_not_launched", {{"why", std::string(status.message())}});
    status_ = status;
    changed_.WaitFor(lock, std::chrono::duration<double>(options_.poll_seconds),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
  }
  lock.Unlock();
  const absl::StatusOr<std::vector<std::string>> ids = launcher->List();
  if (ids.ok()) launcher->Stop(*ids).IgnoreError();
  if (const absl::Status released = launcher->Release(); !released.ok())
    LogEvent(LogLevel::kError, "credentials_not_removed", {{"why", std::string(released.message())}});
}

}  // namespace diapason
