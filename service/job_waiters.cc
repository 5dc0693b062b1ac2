#include "service/job_waiters.h"

#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_manager.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

// What somebody who watches does not notice.
constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

class JobWaiters::Impl {
 public:
  explicit Impl(JobManager& jobs) : jobs_(jobs), thread_([this] { Loop(); }) {}
  ~Impl() { Stop(); }

  void Add(int64_t job, uint64_t seen, std::chrono::milliseconds wait, std::shared_ptr<const std::atomic<bool>> gone,
           Reply reply) {
    const absl::StatusOr<v1::Job> now = jobs_.Get(job, seen, std::chrono::milliseconds(0));
    if (!now.ok() || now->version() > seen || wait.count() <= 0) return Answer(now, reply);
    {
      MutexLock lock(mutex_);
      if (!stopping_) {
        waiting_.push_back({job, seen, Clock::now() + wait, std::move(gone), std::move(reply)});
        return;
      }
    }
    Answer(now, reply);
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      if (std::exchange(stopping_, true)) return;
    }
    changed_.NotifyAll();
    thread_.join();
  }

 private:
  struct Waiting {
    int64_t job;
    uint64_t seen;
    Clock::time_point until;
    std::shared_ptr<const std::atomic<bool>> gone;
    Reply reply;
  };

  static void Answer(const absl::StatusOr<v1::Job>& job, const Reply& reply) {
    reply(job.status(), job.ok() ? *job : v1::Job());
  }

  void Loop() {
    MutexLock lock(mutex_);
    while (true) {
      changed_.WaitFor(lock, kLookEvery, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
      std::vector<Waiting> looked_at = std::move(waiting_);
      waiting_.clear();
      const bool last = stopping_;
      lock.Unlock();
      std::vector<Waiting> still = Look(std::move(looked_at), last);
      lock.Lock();
      for (Waiting& one : still) waiting_.push_back(std::move(one));
      if (last) return;
    }
  }

  // Answers those that need not wait longer. The job of several is looked for once.
  std::vector<Waiting> Look(std::vector<Waiting> waiting, bool last) {
    const Clock::time_point now = Clock::now();
    std::map<int64_t, absl::StatusOr<v1::Job>> jobs;
    std::vector<Waiting> still;
    for (Waiting& one : waiting) {
      auto found = jobs.find(one.job);
      if (found == jobs.end()) found = jobs.emplace(one.job, jobs_.Get(one.job, 0, std::chrono::milliseconds(0))).first;
      const absl::StatusOr<v1::Job>& job = found->second;
      if (last || !job.ok() || job->version() > one.seen || now >= one.until || *one.gone) {
        Answer(job, one.reply);
      } else {
        still.push_back(std::move(one));
      }
    }
    return still;
  }

  JobManager& jobs_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

JobWaiters::JobWaiters(JobManager& jobs) : impl_(std::make_unique<Impl>(jobs)) {}
JobWaiters::~JobWaiters() = default;
void JobWaiters::Add(int64_t job, uint64_t seen, std::chrono::milliseconds wait,
                     std::shared_ptr<const std::atomic<bool>> gone, Reply reply) {
  impl_->Add(job, seen, wait, std::move(gone), std::move(reply));
}
void JobWaiters::Stop() { impl_->Stop(); }

}  // namespace diapason
