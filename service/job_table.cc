#include "service/job_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "service/job_progress.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

// Of a job's progress: what the next service tells of it until its tuner has read the history.
constexpr std::chrono::seconds kSaveEvery{1};
// Of one job, each of which ended with the service's death: a fourth would be no better.
constexpr uint32_t kMaxPreparations = 3;

bool HasEnded(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_DONE || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

// The fleet is at fault, or the history's disk for now: the same job may well go on later.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// A job that the service before left unfinished, but that shall not be begun again.
void GiveUpWhatCannotGoOn(v1::Job& job) {
  if (HasEnded(job)) return;
  const bool crashes = job.preparations() >= kMaxPreparations;
  if (!crashes && !job.cancel_requested()) return;
  job.set_state(job.cancel_requested() ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_FAILED);
  job.set_ended_at(absl::GetCurrentTimeNanos());
  if (job.cancel_requested()) return;
  job.set_text(absl::StrCat("the service died ", job.preparations(), " times while it prepared this job (model '",
                            job.spec().model(), "', target ", job.spec().target(),
                            "): look at its log, and resume the job when the cause is found"));
  LogEvent(LogLevel::kError, "job_given_up", {{"job", absl::StrCat(job.id())}, {"why", job.text()}});
}

}  // namespace

absl::Status JobTable::Open(std::unique_ptr<JobStore> store) {
  MutexLock lock(mutex_);
  store_ = std::move(store);
  ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, store_->Load());
  for (v1::Job& job : jobs) {
    auto entry = std::make_unique<Entry>();
    if (job.state() == v1::JOB_STATE_RUNNING) job.set_state(v1::JOB_STATE_QUEUED);  // the service before was killed
    GiveUpWhatCannotGoOn(job);
    version_ = std::max(version_, job.version());
    entry->job_ = std::move(job);
    jobs_[entry->job_.id()] = std::move(entry);
  }
  return absl::OkStatus();
}

void JobTable::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  for (auto& [id, entry] : jobs_) entry->stop = true;
  changed_.NotifyAll();
}

// Nobody begins another one now. Calls may still delete jobs, and their threads need the lock to end.
void JobTable::Join() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    for (auto& [id, entry] : jobs_) threads.push_back(std::move(entry->thread_));
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

// ---- calls

absl::StatusOr<JobTable::Entry*> JobTable::Find(int64_t id) {
  auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no job ", id, "; `diapason jobs list` shows those there are"));
  }
  return found->second.get();
}

int64_t JobTable::FindKey(const std::string& key) const {
  MutexLock lock(mutex_);
  for (const auto& [id, entry] : jobs_)
    if (entry->job_.key() == key) return id;
  return 0;
}

absl::Status JobTable::CheckRoom(const std::string& owner) const {
  MutexLock lock(mutex_);
  return CheckRoomFor(owner);
}

absl::Status JobTable::CheckRoomFor(const std::string& owner) const {
  int unfinished = 0, own = 0;
  for (const auto& [id, entry] : jobs_) {
    if (HasEnded(entry->job_)) continue;
    ++unfinished;
    own += entry->job_.owner() == owner ? 1 : 0;
  }
  if (unfinished >= limits_.unfinished) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the service has ", unfinished, " unfinished jobs and takes no more; cancel some, or wait"));
  }
  if (!owner.empty() && own >= limits_.unfinished_per_token) {
    return absl::ResourceExhaustedError(absl::StrCat("the token of '", owner, "' has ", own,
                                                     " unfinished jobs and may have ", limits_.unfinished_per_token,
                                                     "; cancel some, or wait"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> JobTable::Add(const std::string& key, const v1::TuneSpec& spec, const std::string& owner) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckRoomFor(owner));
  if (jobs_.size() >= static_cast<size_t>(limits_.jobs)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the service has ", jobs_.size(), " jobs and takes no more; delete some with `diapason jobs delete`"));
  }
  auto entry = std::make_unique<Entry>();
  entry->job_.set_key(key);
  *entry->job_.mutable_spec() = spec;
  entry->job_.set_state(v1::JOB_STATE_QUEUED);
  entry->job_.set_submitted_at(absl::GetCurrentTimeNanos());
  entry->job_.set_owner(owner);
  RETURN_IF_ERROR(Save(*entry));
  const int64_t id = entry->job_.id();
  Changed(*entry);
  jobs_[id] = std::move(entry);
  LogEvent(LogLevel::kInfo, "job_submitted",
           {{"job", absl::StrCat(id)}, {"model", spec.model()}, {"target", spec.target()}, {"owner", owner}});
  return id;
}

std::set<std::string> JobTable::ModelsInUse() const {
  MutexLock lock(mutex_);
  std::set<std::string> hashes;
  for (const auto& [id, entry] : jobs_)
    if (!HasEnded(entry->job_) || entry->running_) hashes.insert(entry->job_.spec().model_hash());
  return hashes;
}

std::vector<v1::Job> JobTable::List(int64_t before, size_t most_bytes, int64_t& next) const {
  MutexLock lock(mutex_);
  std::vector<v1::Job> jobs;
  size_t bytes = 0;
  next = 0;
  auto end = std::make_reverse_iterator(before > 0 ? jobs_.lower_bound(before) : jobs_.end());
  for (auto it = end; it != jobs_.rend(); ++it) {
    if (bytes > most_bytes) {
      next = jobs.back().id();
      break;
    }
    jobs.push_back(it->second->job_);
    jobs.back().mutable_progress()->clear_tasks();
    bytes += jobs.back().ByteSizeLong();
  }
  return jobs;
}

// Another one may delete it meanwhile.
absl::StatusOr<v1::Job> JobTable::Get(int64_t id, uint64_t seen, std::chrono::milliseconds wait) {
  MutexLock lock(mutex_);
  changed_.WaitFor(lock, wait, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = jobs_.find(id);
    return found == jobs_.end() || found->second->job_.version() > seen || stopping_;
  });
  ASSIGN_OR_RETURN(const Entry* entry, Find(id));
  return entry->job_;
}

absl::StatusOr<bool> JobTable::Erase(int64_t id) {
  std::unique_ptr<Entry> deleted;
  {
    MutexLock lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return false;
    Entry& entry = *found->second;
    if (!HasEnded(entry.job_) || entry.running_) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", id, " has not ended; `diapason jobs cancel ", id, "` ends it"));
    }
    RETURN_IF_ERROR(store_->Erase(id));
    deleted = std::move(found->second);
    jobs_.erase(found);
    changed_.NotifyAll();
  }
  if (deleted->thread_.joinable()) deleted->thread_.join();  // it has nothing left to do
  LogEvent(LogLevel::kInfo, "job_deleted", {{"job", absl::StrCat(id)}});
  return true;
}

absl::StatusOr<v1::Job> JobTable::Cancel(int64_t id) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, Find(id));
  if (HasEnded(entry->job_)) return entry->job_;
  const v1::Job before = entry->job_;
  entry->job_.set_cancel_requested(true);
  if (!entry->running_) {
    entry->job_.set_state(v1::JOB_STATE_CANCELLED);
    entry->job_.set_ended_at(absl::GetCurrentTimeNanos());
  }
  RETURN_IF_ERROR(SaveOrRestore(*entry, before));
  entry->stop = true;
  Changed(*entry);
  return entry->job_;
}

absl::StatusOr<v1::Job> JobTable::Resume(int64_t id, int64_t trials, const std::string& owner,
                                         const std::function<absl::Status(const v1::TuneSpec& spec)>& check) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, Find(id));
  if (!HasEnded(entry->job_)) return entry->job_;
  RETURN_IF_ERROR(CheckRoomFor(owner));
  v1::TuneSpec spec = entry->job_.spec();
  const bool changed = trials != 0 && trials != spec.trials();
  if (changed) spec.set_trials(trials);
  RETURN_IF_ERROR(check(spec));
  const v1::Job before = entry->job_;
  *entry->job_.mutable_spec() = spec;
  if (changed) entry->job_.set_series(entry->job_.series() + 1);
  entry->job_.set_state(v1::JOB_STATE_QUEUED);
  entry->job_.clear_text();
  entry->job_.clear_ended_at();
  entry->job_.clear_preparations();
  entry->job_.clear_cancel_requested();
  entry->job_.set_owner(owner);
  RETURN_IF_ERROR(SaveOrRestore(*entry, before));
  entry->not_before_ = {};
  Changed(*entry);
  return entry->job_;
}

// ---- running

JobTable::Entry* JobTable::Next() {
  int running = 0;
  Entry* next = nullptr;
  const Clock::time_point now = Clock::now();
  for (auto& [id, entry] : jobs_) {
    running += entry->running_ ? 1 : 0;
    if (entry->running_ || entry->job_.state() != v1::JOB_STATE_QUEUED || now < entry->not_before_) continue;
    if (next == nullptr || entry->job_.spec().priority() > next->job_.spec().priority()) next = entry.get();
  }
  return running < limits_.running ? next : nullptr;
}

// A place is taken for as long as a tuner works.
bool JobTable::RunNext(const std::function<void(Entry& entry, v1::Job job)>& run) {
  MutexLock lock(mutex_);
  while (!stopping_) {
    Entry* next = Next();
    if (next == nullptr) {
      changed_.WaitFor(lock, std::chrono::milliseconds(200));
      continue;
    }
    if (next->thread_.joinable()) next->thread_.join();  // of an earlier run, which has ended
    next->stop = next->job_.cancel_requested();
    next->running_ = true;
    next->job_.set_state(v1::JOB_STATE_RUNNING);
    next->job_.set_started_at(absl::GetCurrentTimeNanos());
    Save(*next).IgnoreError();  // without it the next service begins it as well
    Changed(*next);
    next->thread_ = std::thread([run, next, job = next->job_] { run(*next, job); });
    return true;
  }
  return false;
}

absl::Status JobTable::BeginPreparation(Entry& entry) {
  MutexLock lock(mutex_);
  entry.job_.set_preparations(entry.job_.preparations() + 1);
  const absl::Status saved = Save(entry);
  if (saved.ok()) return saved;
  entry.job_.set_preparations(entry.job_.preparations() - 1);
  return absl::UnavailableError(saved.message());  // the disk may have room again
}

void JobTable::EndPreparation(Entry& entry) {
  MutexLock lock(mutex_);
  entry.job_.set_preparations(0);
  Save(entry).IgnoreError();  // logged; the count is above what it should be until it is saved again
}

void JobTable::SetProgress(Entry& entry, const v1::JobProgress& progress) {
  MutexLock lock(mutex_);
  // One that begins again, or cannot, knows less than the one before.
  if (progress.measured() == 0 && progress.trials() < entry.job_.progress().trials()) return;
  *entry.job_.mutable_progress() = progress;
  Changed(entry);
  if (Clock::now() - entry.saved_ >= kSaveEvery) Save(entry).IgnoreError();
}

void JobTable::SetNetworkCheck(Entry& entry, v1::NetworkCheckOutcome outcome) {
  MutexLock lock(mutex_);
  v1::JobProgress& progress = *entry.job_.mutable_progress();
  if (outcome.latency_us() > 0) EstimateAsMeasured(outcome.latency_us(), progress);
  *progress.mutable_network_check() = std::move(outcome);
  Changed(entry);
}

void JobTable::End(Entry& entry, const absl::StatusOr<std::string>& stopped) {
  MutexLock lock(mutex_);
  entry.running_ = false;
  v1::Job& job = entry.job_;
  job.set_ended_at(absl::GetCurrentTimeNanos());
  job.clear_text();
  if (stopped.ok()) {
    job.set_state(v1::JOB_STATE_DONE);
    job.mutable_progress()->set_stopped(*stopped);
  } else if (job.cancel_requested()) {
    job.set_state(v1::JOB_STATE_CANCELLED);
  } else if (absl::IsCancelled(stopped.status()) || MayPass(stopped.status())) {
    job.set_state(v1::JOB_STATE_QUEUED);
    job.clear_ended_at();
    if (!absl::IsCancelled(stopped.status())) job.set_text(std::string(stopped.status().message()));
    entry.not_before_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limits_.retry_seconds));
  } else {
    job.set_state(v1::JOB_STATE_FAILED);
    job.set_text(std::string(stopped.status().message()));
  }
  Save(entry).IgnoreError();  // logged; the next service does it again, with nothing left to measure
  LogEvent(LogLevel::kInfo, "job_ends",
           {{"job", absl::StrCat(job.id())}, {"state", v1::JobState_Name(job.state())}, {"why", job.text()}});
  Changed(entry);
}

absl::Status JobTable::Save(Entry& entry) {
  entry.saved_ = Clock::now();
  v1::Job stored = entry.job_;
  absl::Status status = store_->Put(stored);
  if (!status.ok())
    LogEvent(LogLevel::kError, "job_not_saved",
             {{"job", absl::StrCat(entry.job_.id())}, {"why", std::string(status.message())}});
  entry.job_.set_id(stored.id());
  return status;
}

absl::Status JobTable::SaveOrRestore(Entry& entry, const v1::Job& before) {
  absl::Status saved = Save(entry);
  if (!saved.ok()) entry.job_ = before;
  return saved;
}

}  // namespace diapason
