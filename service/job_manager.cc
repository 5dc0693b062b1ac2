#include "service/job_manager.h"

#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_files.h"
#include "service/job_runner.h"
#include "service/job_table.h"
#include "service/preparation_turns.h"
#include "service/tune_spec.h"

namespace diapason {
namespace {

constexpr size_t kMaxKey = 128;
constexpr size_t kMaxSpecBytes = 64 << 10;

JobLimits LimitsOf(const JobManagerOptions& options) {
  return {options.running, options.unfinished, options.unfinished_per_token, options.jobs, options.retry_seconds};
}

}  // namespace

// Submissions, and the order in which the parts begin and stop.
class JobManager::Impl {
 public:
  explicit Impl(JobManagerOptions options) : options_(std::move(options)) {}
  ~Impl() { Stop(); }

  absl::Status Open();
  void Run(const std::string& tracker);
  void Stop();
  absl::StatusOr<int64_t> Submit(const std::string& key, const v1::TuneSpec& spec, const std::string& owner);
  absl::StatusOr<v1::Job> Cancel(int64_t id);
  absl::StatusOr<v1::Job> Resume(int64_t id, int64_t trials, const std::string& owner);
  absl::Status Delete(int64_t id);
  JobTable& jobs() { return jobs_; }
  const JobFiles& files() const { return files_; }

 private:
  absl::StatusOr<int64_t> Accept(const std::string& key, const v1::TuneSpec& spec, const std::string& owner);

  const JobManagerOptions options_;
  // Each locks itself.
  JobFiles files_{options_};
  JobTable jobs_{LimitsOf(options_)};
  PreparationTurns turns_;
  const JobRunner runner_{options_, files_, jobs_, turns_};
  std::thread scheduler_;

  Mutex mutex_;  // may be held while jobs_ is called
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::string> submitting_ ABSL_GUARDED_BY(mutex_);  // keys of the calls of Submit that are under way
};

absl::Status JobManager::Impl::Open() {
  std::unique_ptr<JobStore> store;
  RETURN_IF_ERROR(files_.Open(store));
  return jobs_.Open(std::move(store));
}

void JobManager::Impl::Run(const std::string& tracker) {
  scheduler_ = std::thread([this, tracker] {
    const auto run = [this, tracker](JobTable::Entry& entry, const v1::Job& job) { runner_.Run(entry, job, tracker); };
    while (jobs_.RunNext(run)) {
    }
  });
}

void JobManager::Impl::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  jobs_.Stop();
  turns_.Stop();
  if (scheduler_.joinable()) scheduler_.join();
  jobs_.Join();
}

// A second call with a key waits for the first, and gives what it gave.
absl::StatusOr<int64_t> JobManager::Impl::Submit(const std::string& key, const v1::TuneSpec& spec,
                                                 const std::string& owner) {
  if (key.empty() || key.size() > kMaxKey) return absl::InvalidArgumentError("a job needs a key of its own");
  if (spec.ByteSizeLong() > kMaxSpecBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job's options have ", spec.ByteSizeLong(), " bytes, more than the limit of ", kMaxSpecBytes));
  }
  {
    MutexLock lock(mutex_);
    changed_.Wait(lock,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || submitting_.count(key) == 0; });
    if (stopping_) return absl::UnavailableError("the service stops");
    if (const int64_t id = jobs_.FindKey(key); id != 0) return id;
    submitting_.insert(key);
  }
  absl::StatusOr<int64_t> id = Accept(key, spec, owner);
  MutexLock lock(mutex_);
  submitting_.erase(key);
  changed_.NotifyAll();
  return id;
}

absl::StatusOr<int64_t> JobManager::Impl::Accept(const std::string& key, const v1::TuneSpec& spec,
                                                 const std::string& owner) {
  ASSIGN_OR_RETURN(const TuneSpec checked, FromProto(spec));
  RETURN_IF_ERROR(files_.FindModel(spec, ""));
  RETURN_IF_ERROR(jobs_.CheckRoom(owner));  // before the work of reading a model
  RETURN_IF_ERROR(runner_.Check(checked, spec));
  return jobs_.Add(key, spec, owner);
}

absl::StatusOr<v1::Job> JobManager::Impl::Cancel(int64_t id) {
  absl::StatusOr<v1::Job> job = jobs_.Cancel(id);
  turns_.Wake();
  return job;
}

absl::StatusOr<v1::Job> JobManager::Impl::Resume(int64_t id, int64_t trials, const std::string& owner) {
  return jobs_.Resume(id, trials, owner, [&](const v1::TuneSpec& spec) -> absl::Status {
    RETURN_IF_ERROR(FromProto(spec).status());
    return files_.FindModel(spec, " any more; submit the job again with `diapason submit`");
  });
}

absl::Status JobManager::Impl::Delete(int64_t id) {
  ASSIGN_OR_RETURN(const bool erased, jobs_.Erase(id));
  if (erased) files_.EraseCostModel(id);
  return absl::OkStatus();
}

// ---- the public face

JobManager::JobManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JobManager::~JobManager() = default;

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Open(JobManagerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<JobManager>(new JobManager(std::move(impl)));
}
void JobManager::Run(const std::string& tracker) { impl_->Run(tracker); }
void JobManager::Stop() { impl_->Stop(); }
absl::StatusOr<int64_t> JobManager::Submit(const std::string& key, const v1::TuneSpec& spec, const std::string& owner) {
  return impl_->Submit(key, spec, owner);
}
std::vector<v1::Job> JobManager::List(int64_t before, size_t most_bytes, int64_t& next) {
  return impl_->jobs().List(before, most_bytes, next);
}
absl::Status JobManager::Delete(int64_t job) { return impl_->Delete(job); }
absl::StatusOr<v1::Job> JobManager::Get(int64_t job, uint64_t seen, std::chrono::milliseconds wait) {
  return impl_->jobs().Get(job, seen, wait);
}
absl::StatusOr<v1::Job> JobManager::Cancel(int64_t job) { return impl_->Cancel(job); }
absl::StatusOr<v1::Job> JobManager::Resume(int64_t job, int64_t trials, const std::string& owner) {
  return impl_->Resume(job, trials, owner);
}
History& JobManager::history() { return impl_->files().history(); }
ModelStore& JobManager::models() { return impl_->files().models(); }
std::set<std::string> JobManager::ModelsInUse() { return impl_->jobs().ModelsInUse(); }

}  // namespace diapason
