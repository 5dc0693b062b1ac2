#include "service/job_manager.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/mutex.h"
#include "db/blobs.h"
#include "db/history.h"
#include "db/history_name.h"
#include "db/rounds.h"
#include "db/service_tables.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_progress.h"
#include "service/job_store.h"
#include "service/measurer.h"
#include "service/measuring_judge.h"
#include "service/tune_spec.h"
#include "worker/log.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxKey = 128;
constexpr size_t kMaxSpecBytes = 64 << 10;
// Of a job's progress: what the next service tells of it until its tuner has read the history.
constexpr std::chrono::seconds kSaveEvery{1};
// Of one job, each of which ended with the service's death: a fourth would be no better.
constexpr uint32_t kMaxPreparations = 3;
// Submissions that wait for their model to be looked at, each with a thread of the server.
constexpr int kMaxWaitingSubmissions = 16;
// For other writers, and for a database that is away, while all calls wait.
constexpr std::chrono::milliseconds kJobsBusy{3000};

bool Ended(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_DONE || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

// The fleet is at fault, or the history's disk for now: the same job may well go on later.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// A job that the service before left unfinished, but that shall not be begun again.
void GiveUpWhatCannotGoOn(v1::Job& job) {
  if (Ended(job)) return;
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

class JobManager::Impl {
 public:
  explicit Impl(JobManagerOptions options)
      : options_(std::move(options)), models_folder_(StatePath(options_.history, ".models")) {}
  ~Impl() { Stop(); }

  absl::Status Open();
  void Run(const std::string& tracker);
  void Stop();
  absl::StatusOr<int64_t> Submit(const std::string& key, const v1::TuneSpec& spec, const std::string& owner);
  std::vector<v1::Job> List(int64_t before, size_t most_bytes, int64_t& next);
  absl::Status Delete(int64_t id);
  absl::StatusOr<v1::Job> Get(int64_t id, uint64_t seen, std::chrono::milliseconds wait);
  absl::StatusOr<v1::Job> Cancel(int64_t id);
  absl::StatusOr<v1::Job> Resume(int64_t id, int64_t trials, const std::string& owner);
  History& history() { return *history_; }
  ModelStore& models() { return *models_; }
  std::set<std::string> ModelsInUse();

 private:
  // A job and, while it runs, its thread. mutex_ guards its members, but for the atomic one.
  struct Entry {
    v1::Job job;
    std::atomic<bool> stop{false};
    bool running = false;  // its thread works; the thread itself is joined by the next one to need it
    std::thread thread;
    Clock::time_point not_before{};  // after a fault of the fleet
    Clock::time_point saved{};
  };

  // Reading models and making search spaces takes memory and time by the model: one at a time, whoever asks.
  class Turn {
   public:
    explicit Turn(Impl* manager) : manager_(manager) {}
    Turn(Turn&& other) noexcept : manager_(std::exchange(other.manager_, nullptr)), entry_(other.entry_) {}
    ~Turn() {
      if (manager_ != nullptr) manager_->EndTurn(entry_);
    }
    void Counts(Entry* entry) { entry_ = entry; }

   private:
    Impl* manager_;
    Entry* entry_ = nullptr;  // whose preparation it is
  };
  // Of a submission. Unavailable when too many wait, or the service stops.
  absl::StatusOr<Turn> BeginTurn();
  // Of a job, which is stored as being prepared. Cancelled when it is to stop.
  absl::StatusOr<Turn> BeginTurn(Entry& entry);
  void EndTurn(Entry* entry);
  absl::StatusOr<int64_t> Accept(const std::string& key, const v1::TuneSpec& spec, const std::string& owner);
  // ResourceExhausted when there may not be one more unfinished job of `owner`.
  absl::Status CheckRoom(const std::string& owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // NotFound, with how to fix it, when a model that was sent is not there.
  absl::Status FindModel(const v1::TuneSpec& spec, const std::string& remedy) const;

  // Opens what is kept besides the history.
  absl::Status OpenStores() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenSharedStores() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The cost model of a job, from the database and to it.
  absl::Status BringCostModel(int64_t id);
  void KeepCostModel(int64_t id);

  void ScheduleLoop();
  void Begin(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunJob(Entry& entry);
  // `name`: of the job, whatever its options; `run`: what the history's runs of the job, since it has these options,
  // are known by.
  absl::StatusOr<std::string> Tune(Entry& entry, const v1::TuneSpec& message, int64_t id, const std::string& name,
                                   const std::string& run);
  absl::StatusOr<TuneWork> Prepare(Entry& entry, const TuneSpec& spec, const v1::TuneSpec& message);
  // With the turn held. Errors name a model as its submitter does.
  absl::StatusOr<TuneWork> Read(TuneSpec spec, const v1::TuneSpec& message, const std::atomic<bool>* stop);
  // Whether the network is right at last; the outcome is in the job's progress.
  absl::Status CheckNetworkOf(Entry& entry, const TuneSpec& spec, const v1::TuneSpec& message, const Fleet& fleet);
  absl::StatusOr<std::vector<ImportedPlan>> ReadNetworks(Entry& entry, const TuneSpec& spec,
                                                         const v1::TuneSpec& message);
  void Ended(Entry& entry, const absl::StatusOr<std::string>& stopped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry*> Find(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What changed is written, or the reason why not becomes the job's text.
  absl::Status Save(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What could not be written has not happened.
  absl::Status SaveOrRestore(Entry& entry, const v1::Job& before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    entry.job.set_version(++version_);
    changed_.NotifyAll();
  }
  // What the model of a job is read from.
  absl::StatusOr<std::string> BringModel(const v1::TuneSpec& spec) const {
    if (spec.model_hash().empty()) return spec.model();
    RETURN_IF_ERROR(models_->Bring(spec.model_hash()));
    return models_->PathOf(spec.model_hash());
  }

  static std::string CostModelName(int64_t job) { return absl::StrCat("job-", job, ".model"); }
  std::string CostModelPath(int64_t job) const { return absl::StrCat(models_folder_, "/", CostModelName(job)); }

  const JobManagerOptions options_;
  const std::string models_folder_;
  std::unique_ptr<BlobStore> blobs_;    // self-locking; null: models are files alone
  std::unique_ptr<ModelStore> models_;  // self-locking
  std::unique_ptr<History> history_;    // self-locking
  std::unique_ptr<RoundStore> rounds_;  // self-locking
  std::string tracker_;                 // constant from Run on
  std::thread scheduler_;

  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<JobStore> store_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::unique_ptr<Entry>> jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool preparing_ ABSL_GUARDED_BY(mutex_) = false;            // somebody has the turn
  int waiting_submissions_ ABSL_GUARDED_BY(mutex_) = 0;       // for the turn
  std::set<std::string> submitting_ ABSL_GUARDED_BY(mutex_);  // keys of the calls of Submit that are under way
};

absl::Status JobManager::Impl::Open() {
  HistoryOptions history;
  history.fence = options_.fence;
  ASSIGN_OR_RETURN(history_, History::Open(options_.history, HistoryMode::kCreate, std::move(history)));
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(IsPostgresUri(options_.history) ? OpenSharedStores() : OpenStores());
  models_ = std::make_unique<ModelStore>(models_folder_, options_.models, blobs_.get());
  RETURN_IF_ERROR(models_->RemoveStale());
  ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, store_->Load());
  for (v1::Job& job : jobs) {
    auto entry = std::make_unique<Entry>();
    if (job.state() == v1::JOB_STATE_RUNNING) job.set_state(v1::JOB_STATE_QUEUED);  // the service before was killed
    GiveUpWhatCannotGoOn(job);
    version_ = std::max(version_, job.version());
    entry->job = std::move(job);
    jobs_[entry->job.id()] = std::move(entry);
  }
  return absl::OkStatus();
}

absl::Status JobManager::Impl::OpenStores() {
  ASSIGN_OR_RETURN(store_, JobStore::Open(StatePath(options_.history, ".jobs")));
  ASSIGN_OR_RETURN(rounds_, RoundStore::Open(StatePath(options_.history, ".rounds")));
  return absl::OkStatus();
}

// Each has a connection of its own.
absl::Status JobManager::Impl::OpenSharedStores() {
  PostgresOptions options;
  options.fence = options_.fence;
  if (options_.fence != nullptr) options.idle_timeout = options_.fence->lasts();
  ASSIGN_OR_RETURN(std::unique_ptr<Database> rounds, OpenServiceTables(options_.history, options));
  ASSIGN_OR_RETURN(std::unique_ptr<Database> blobs, OpenServiceTables(options_.history, options));
  options.busy_timeout = kJobsBusy;
  ASSIGN_OR_RETURN(std::unique_ptr<Database> jobs, OpenServiceTables(options_.history, options));
  rounds_ = RoundStore::OpenShared(std::move(rounds));
  blobs_ = std::make_unique<BlobStore>(std::move(blobs));
  store_ = JobStore::OpenShared(std::move(jobs));
  return absl::OkStatus();
}

void JobManager::Impl::Run(const std::string& tracker) {
  tracker_ = tracker;
  scheduler_ = std::thread([this] { ScheduleLoop(); });
}

void JobManager::Impl::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (auto& [id, entry] : jobs_) entry->stop = true;
  }
  changed_.NotifyAll();
  if (scheduler_.joinable()) scheduler_.join();
  // Nobody begins another one now. Calls may still delete jobs, and their threads need the lock to end.
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    for (auto& [id, entry] : jobs_) threads.push_back(std::move(entry->thread));
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

// ---- calls

absl::StatusOr<JobManager::Impl::Entry*> JobManager::Impl::Find(int64_t id) {
  auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no job ", id, "; `diapason jobs list` shows those there are"));
  }
  return found->second.get();
}

absl::Status JobManager::Impl::Save(Entry& entry) {
  entry.saved = Clock::now();
  v1::Job stored = entry.job;
  absl::Status status = store_->Put(stored);
  if (!status.ok())
    LogEvent(LogLevel::kError, "job_not_saved",
             {{"job", absl::StrCat(entry.job.id())}, {"why", std::string(status.message())}});
  entry.job.set_id(stored.id());
  return status;
}

absl::Status JobManager::Impl::SaveOrRestore(Entry& entry, const v1::Job& before) {
  absl::Status saved = Save(entry);
  if (!saved.ok()) entry.job = before;
  return saved;
}

absl::StatusOr<JobManager::Impl::Turn> JobManager::Impl::BeginTurn() {
  MutexLock lock(mutex_);
  if (waiting_submissions_ >= kMaxWaitingSubmissions)
    return absl::UnavailableError(
        "the service looks at other models, and too many wait already; try again in a minute");
  ++waiting_submissions_;
  changed_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !preparing_; });
  --waiting_submissions_;
  if (stopping_) return absl::UnavailableError("the service stops");
  preparing_ = true;
  return Turn(this);
}

absl::StatusOr<JobManager::Impl::Turn> JobManager::Impl::BeginTurn(Entry& entry) {
  MutexLock lock(mutex_);
  // Cancel and Stop wake it.
  changed_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return entry.stop || !preparing_; });
  if (entry.stop) return absl::CancelledError("stopped");
  entry.job.set_preparations(entry.job.preparations() + 1);
  if (absl::Status saved = Save(entry); !saved.ok()) {
    entry.job.set_preparations(entry.job.preparations() - 1);
    return absl::UnavailableError(saved.message());  // the disk may have room again
  }
  preparing_ = true;
  Turn turn(this);
  turn.Counts(&entry);
  return turn;
}

void JobManager::Impl::EndTurn(Entry* entry) {
  MutexLock lock(mutex_);
  preparing_ = false;
  if (entry != nullptr) {
    entry->job.set_preparations(0);
    Save(*entry).IgnoreError();  // logged; the count is above what it should be until it is saved again
  }
  changed_.NotifyAll();
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
    for (const auto& [id, entry] : jobs_) {
      if (entry->job.key() == key) return id;
    }
    submitting_.insert(key);
  }
  absl::StatusOr<int64_t> id = Accept(key, spec, owner);
  MutexLock lock(mutex_);
  submitting_.erase(key);
  changed_.NotifyAll();
  return id;
}

absl::Status JobManager::Impl::CheckRoom(const std::string& owner) const {
  int unfinished = 0, own = 0;
  for (const auto& [id, entry] : jobs_) {
    if (diapason::Ended(entry->job)) continue;
    ++unfinished;
    own += entry->job.owner() == owner ? 1 : 0;
  }
  if (unfinished >= options_.unfinished) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the service has ", unfinished, " unfinished jobs and takes no more; cancel some, or wait"));
  }
  if (!owner.empty() && own >= options_.unfinished_per_token) {
    return absl::ResourceExhaustedError(absl::StrCat("the token of '", owner, "' has ", own,
                                                     " unfinished jobs and may have ", options_.unfinished_per_token,
                                                     "; cancel some, or wait"));
  }
  return absl::OkStatus();
}

absl::Status JobManager::Impl::FindModel(const v1::TuneSpec& spec, const std::string& remedy) const {
  if (spec.model_hash().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool there, models_->Has(spec.model_hash()));
  if (there) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the service does not have the model '", spec.model(), "'", remedy));
}

absl::StatusOr<int64_t> JobManager::Impl::Accept(const std::string& key, const v1::TuneSpec& spec,
                                                 const std::string& owner) {
  ASSIGN_OR_RETURN(const TuneSpec checked, FromProto(spec));
  RETURN_IF_ERROR(FindModel(spec, ""));
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(CheckRoom(owner));  // before the work of reading a model
  }
  // What `tune` would refuse is refused before the job exists.
  {
    ASSIGN_OR_RETURN(const Turn turn, BeginTurn());
    RETURN_IF_ERROR(Read(checked, spec, nullptr).status());
  }
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckRoom(owner));  // others came meanwhile
  if (jobs_.size() >= static_cast<size_t>(options_.jobs)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the service has ", jobs_.size(), " jobs and takes no more; delete some with `diapason jobs delete`"));
  }
  auto entry = std::make_unique<Entry>();
  entry->job.set_key(key);
  *entry->job.mutable_spec() = spec;
  entry->job.set_state(v1::JOB_STATE_QUEUED);
  entry->job.set_submitted_at(absl::GetCurrentTimeNanos());
  entry->job.set_owner(owner);
  RETURN_IF_ERROR(Save(*entry));
  const int64_t id = entry->job.id();
  Changed(*entry);
  jobs_[id] = std::move(entry);
  LogEvent(LogLevel::kInfo, "job_submitted",
           {{"job", absl::StrCat(id)}, {"model", spec.model()}, {"target", spec.target()}, {"owner", owner}});
  return id;
}

std::set<std::string> JobManager::Impl::ModelsInUse() {
  MutexLock lock(mutex_);
  std::set<std::string> hashes;
  for (const auto& [id, entry] : jobs_)
    if (!diapason::Ended(entry->job) || entry->running) hashes.insert(entry->job.spec().model_hash());
  return hashes;
}

std::vector<v1::Job> JobManager::Impl::List(int64_t before, size_t most_bytes, int64_t& next) {
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
    jobs.push_back(it->second->job);
    jobs.back().mutable_progress()->clear_tasks();
    bytes += jobs.back().ByteSizeLong();
  }
  return jobs;
}

// Another one may delete it meanwhile.
absl::StatusOr<v1::Job> JobManager::Impl::Get(int64_t id, uint64_t seen, std::chrono::milliseconds wait) {
  MutexLock lock(mutex_);
  changed_.WaitFor(lock, wait, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = jobs_.find(id);
    return found == jobs_.end() || found->second->job.version() > seen || stopping_;
  });
  ASSIGN_OR_RETURN(const Entry* entry, Find(id));
  return entry->job;
}

absl::Status JobManager::Impl::Delete(int64_t id) {
  std::unique_ptr<Entry> deleted;
  {
    MutexLock lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return absl::OkStatus();
    Entry& entry = *found->second;
    if (!diapason::Ended(entry.job) || entry.running) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", id, " has not ended; `diapason jobs cancel ", id, "` ends it"));
    }
    RETURN_IF_ERROR(store_->Erase(id));
    deleted = std::move(found->second);
    jobs_.erase(found);
    changed_.NotifyAll();
  }
  if (deleted->thread.joinable()) deleted->thread.join();  // it has nothing left to do
  std::error_code ignored;
  std::filesystem::remove(CostModelPath(id), ignored);
  if (blobs_ != nullptr) blobs_->Erase(CostModelName(id)).IgnoreError();  // the job is gone; what is left has no reader
  LogEvent(LogLevel::kInfo, "job_deleted", {{"job", absl::StrCat(id)}});
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> JobManager::Impl::Cancel(int64_t id) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, Find(id));
  if (diapason::Ended(entry->job)) return entry->job;
  const v1::Job before = entry->job;
  entry->job.set_cancel_requested(true);
  if (!entry->running) {
    entry->job.set_state(v1::JOB_STATE_CANCELLED);
    entry->job.set_ended_at(absl::GetCurrentTimeNanos());
  }
  RETURN_IF_ERROR(SaveOrRestore(*entry, before));
  entry->stop = true;
  Changed(*entry);
  return entry->job;
}

absl::StatusOr<v1::Job> JobManager::Impl::Resume(int64_t id, int64_t trials, const std::string& owner) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, Find(id));
  if (!diapason::Ended(entry->job)) return entry->job;
  RETURN_IF_ERROR(CheckRoom(owner));
  v1::TuneSpec spec = entry->job.spec();
  const bool changed = trials != 0 && trials != spec.trials();
  if (changed) spec.set_trials(trials);
  RETURN_IF_ERROR(FromProto(spec).status());
  RETURN_IF_ERROR(FindModel(spec, " any more; submit the job again with `diapason submit`"));
  const v1::Job before = entry->job;
  *entry->job.mutable_spec() = spec;
  if (changed) entry->job.set_series(entry->job.series() + 1);
  entry->job.set_state(v1::JOB_STATE_QUEUED);
  entry->job.clear_text();
  entry->job.clear_ended_at();
  entry->job.clear_preparations();
  entry->job.clear_cancel_requested();
  entry->job.set_owner(owner);
  RETURN_IF_ERROR(SaveOrRestore(*entry, before));
  entry->not_before = {};
  Changed(*entry);
  return entry->job;
}

// ---- running

// Queued jobs by priority, then by age; a place is taken for as long as a tuner works.
void JobManager::Impl::ScheduleLoop() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    int running = 0;
    Entry* next = nullptr;
    const Clock::time_point now = Clock::now();
    for (auto& [id, entry] : jobs_) {
      running += entry->running ? 1 : 0;
      if (entry->running || entry->job.state() != v1::JOB_STATE_QUEUED || now < entry->not_before) continue;
      if (next == nullptr || entry->job.spec().priority() > next->job.spec().priority()) next = entry.get();
    }
    if (next != nullptr && running < options_.running) {
      Begin(*next);
      continue;
    }
    changed_.WaitFor(lock, std::chrono::milliseconds(200));
  }
}

void JobManager::Impl::Begin(Entry& entry) {
  if (entry.thread.joinable()) entry.thread.join();  // of an earlier run, which has ended
  entry.stop = entry.job.cancel_requested();
  entry.running = true;
  entry.job.set_state(v1::JOB_STATE_RUNNING);
  entry.job.set_started_at(absl::GetCurrentTimeNanos());
  Save(entry).IgnoreError();  // without it the next service begins it as well
  Changed(entry);
  entry.thread = std::thread([this, &entry] { RunJob(entry); });
}

void JobManager::Impl::RunJob(Entry& entry) {
  v1::TuneSpec spec;
  int64_t id = 0;
  std::string name, run;
  {
    MutexLock lock(mutex_);
    spec = entry.job.spec();
    id = entry.job.id();
    // Ids begin anew with another list of jobs, keys do not.
    name = absl::StrCat("diapason serve: job ", id, " (", entry.job.key());
    run = absl::StrCat(name, ".", entry.job.series(), ")");
  }
  LogEvent(LogLevel::kInfo, "job_begins", {{"job", absl::StrCat(id)}, {"model", spec.model()}});
  const absl::StatusOr<std::string> stopped = Tune(entry, spec, id, name + ")", run);
  MutexLock lock(mutex_);
  Ended(entry, stopped);
}

absl::StatusOr<TuneWork> JobManager::Impl::Read(TuneSpec spec, const v1::TuneSpec& message,
                                                const std::atomic<bool>* stop) {
  ASSIGN_OR_RETURN(const std::string path, BringModel(message));
  spec.options.external_data = false;
  absl::StatusOr<TuneWork> work = PrepareWork(spec, path, {options_.import, stop});
  if (work.ok() || message.model_hash().empty()) return work;
  return absl::Status(work.status().code(), absl::StrReplaceAll(work.status().message(), {{path, message.model()}}));
}

absl::StatusOr<TuneWork> JobManager::Impl::Prepare(Entry& entry, const TuneSpec& spec, const v1::TuneSpec& message) {
  ASSIGN_OR_RETURN(const Turn turn, BeginTurn(entry));
  return Read(spec, message, &entry.stop);
}

absl::StatusOr<std::string> JobManager::Impl::Tune(Entry& entry, const v1::TuneSpec& message, int64_t id,
                                                   const std::string& name, const std::string& run) {
  ASSIGN_OR_RETURN(const TuneSpec spec, FromProto(message));
  ASSIGN_OR_RETURN(TuneWork work, Prepare(entry, spec, message));
  RETURN_IF_ERROR(history_->LinkNetwork(work.links));
  FleetOptions fleet_options;
  fleet_options.tracker = tracker_;
  ASSIGN_OR_RETURN(fleet_options.target, Target::Parse(spec.target));
  fleet_options.device_model = spec.device_model;
  fleet_options.client.name = absl::StrCat("job ", id, " ", work.network);
  fleet_options.client.job = absl::StrCat(id);
  fleet_options.client.priority = spec.priority;
  fleet_options.client.weight = spec.weight;
  fleet_options.client.labels = {spec.labels.begin(), spec.labels.end()};
  fleet_options.client.give_up_seconds = options_.give_up_seconds;
  fleet_options.client.credentials = options_.credentials;
  fleet_options.stop = &entry.stop;
  ASSIGN_OR_RETURN(const Fleet fleet, ConnectFleet(fleet_options));
  TunerOptions options = TunerOptionsFor(spec, work, fleet.target);
  ASSIGN_OR_RETURN(options.tuned_elsewhere, ShippedForSearch(spec, fleet.target, options_.import.program));
  std::error_code ignored;
  std::filesystem::create_directories(models_folder_, ignored);
  std::filesystem::permissions(models_folder_, std::filesystem::perms::owner_all, ignored);
  options.command_line = run;
  if (!spec.deterministic) {
    options.model_path = CostModelPath(id);
    RETURN_IF_ERROR(BringCostModel(id));
  }
  ASSIGN_OR_RETURN(options.continued_runs, ContinuedRuns(spec, *history_, options.command_line));
  options.rounds = rounds_.get();
  options.rounds_run = name;
  JobListener listener(work.partition, [&](const v1::JobProgress& progress) {
    MutexLock lock(mutex_);
    // One that begins again, or cannot, knows less than the one before.
    if (progress.measured() == 0 && progress.trials() < entry.job.progress().trials()) return;
    *entry.job.mutable_progress() = progress;
    Changed(entry);
    if (Clock::now() - entry.saved >= kSaveEvery) Save(entry).IgnoreError();
  });
  for (const std::string& warning : work.warnings) listener.OnWarning(warning);
  std::unique_ptr<Tuner> tuner;
  {
    ASSIGN_OR_RETURN(const Turn turn, BeginTurn(entry));
    ASSIGN_OR_RETURN(tuner, Tuner::Create(std::move(work.tasks), std::move(options), fleet.measurer.get(),
                                          history_.get(), &listener));
  }
  const absl::StatusOr<TuneReport> report = tuner->Run(&entry.stop);
  if (!spec.deterministic) KeepCostModel(id);
  RETURN_IF_ERROR(report.status());
  if (entry.stop) return absl::CancelledError("stopped");
  if (!spec.no_check) {
    RETURN_IF_ERROR(CheckNetworkOf(entry, spec, message, fleet));
  }
  return report->stopped;
}

// A copy of an earlier time, before another service had the job, goes in any case.
absl::Status JobManager::Impl::BringCostModel(int64_t id) {
  if (blobs_ == nullptr) return absl::OkStatus();
  std::ofstream file(CostModelPath(id), std::ios::binary | std::ios::trunc);
  const absl::Status brought = blobs_->Get(CostModelName(id), [&](std::string_view data) {
    file.write(data.data(), static_cast<std::streamsize>(data.size()));
    return absl::OkStatus();
  });
  file.close();
  std::error_code ignored;
  if (!brought.ok() || !file) std::filesystem::remove(CostModelPath(id), ignored);
  // Without one the job trains another from its records.
  return absl::IsNotFound(brought) ? absl::OkStatus() : brought;
}

void JobManager::Impl::KeepCostModel(int64_t id) {
  std::error_code ignored;
  if (blobs_ == nullptr || !std::filesystem::exists(CostModelPath(id), ignored)) return;
  if (const absl::Status kept = blobs_->Put(CostModelName(id), CostModelPath(id)); !kept.ok())
    LogEvent(LogLevel::kWarning, "cost_model_not_kept",
             {{"job", absl::StrCat(id)}, {"why", std::string(kept.message())}});
}

absl::StatusOr<std::vector<ImportedPlan>> JobManager::Impl::ReadNetworks(Entry& entry, const TuneSpec& spec,
                                                                         const v1::TuneSpec& message) {
  ASSIGN_OR_RETURN(const Turn turn, BeginTurn(entry));
  ASSIGN_OR_RETURN(const std::string path, BringModel(message));
  ModelOptions options = spec.options;
  options.external_data = false;
  return ImportPlans({path, options, options_.import, /*with_network=*/true, &entry.stop}, spec.dims);
}

absl::Status JobManager::Impl::CheckNetworkOf(Entry& entry, const TuneSpec& spec, const v1::TuneSpec& message,
                                              const Fleet& fleet) {
  ASSIGN_OR_RETURN(const std::vector<ImportedPlan> plans, ReadNetworks(entry, spec, message));
  ASSIGN_OR_RETURN(const std::vector<PlanCheck> checks,
                   CheckTunedPlans(plans, fleet.target, *history_, fleet.measurer->client(),
                                   {fleet.target.facts.model, spec.measure.build_timeout_s, 1, &entry.stop,
                                    NetworkName(spec.model)}));
  MutexLock lock(mutex_);
  v1::NetworkCheckOutcome& outcome = *entry.job.mutable_progress()->mutable_network_check();
  outcome.Clear();
  outcome.set_right(AllRight(checks));
  outcome.set_text(Summary(checks));
  if (checks.size() == 1) outcome.set_latency_us(checks.front().report.run_seconds * 1e6);
  for (const PlanCheck& check : checks) {
    outcome.set_seconds(outcome.seconds() + check.report.seconds);
    for (const NetworkCheckReport::Wrong& wrong : check.report.wrong) {
      outcome.add_wrong_records(wrong.Sentence());
      LogEvent(
          LogLevel::kWarning, "record_wrong_in_network",
          {{"job", absl::StrCat(entry.job.id())}, {"record", absl::StrCat(wrong.record.id)}, {"why", wrong.evidence}});
    }
  }
  Changed(entry);
  return outcome.right() ? absl::OkStatus() : absl::DataLossError(WhyWrong(checks));
}

void JobManager::Impl::Ended(Entry& entry, const absl::StatusOr<std::string>& stopped) {
  entry.running = false;
  v1::Job& job = entry.job;
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
    entry.not_before = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(options_.retry_seconds));
  } else {
    job.set_state(v1::JOB_STATE_FAILED);
    job.set_text(std::string(stopped.status().message()));
  }
  Save(entry).IgnoreError();  // logged; the next service does it again, with nothing left to measure
  LogEvent(LogLevel::kInfo, "job_ends",
           {{"job", absl::StrCat(job.id())}, {"state", v1::JobState_Name(job.state())}, {"why", job.text()}});
  Changed(entry);
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
  return impl_->List(before, most_bytes, next);
}
absl::Status JobManager::Delete(int64_t job) { return impl_->Delete(job); }
absl::StatusOr<v1::Job> JobManager::Get(int64_t job, uint64_t seen, std::chrono::milliseconds wait) {
  return impl_->Get(job, seen, wait);
}
absl::StatusOr<v1::Job> JobManager::Cancel(int64_t job) { return impl_->Cancel(job); }
absl::StatusOr<v1::Job> JobManager::Resume(int64_t job, int64_t trials, const std::string& owner) {
  return impl_->Resume(job, trials, owner);
}
History& JobManager::history() { return impl_->history(); }
ModelStore& JobManager::models() { return impl_->models(); }
std::set<std::string> JobManager::ModelsInUse() { return impl_->ModelsInUse(); }

}  // namespace diapason
