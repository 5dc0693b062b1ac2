#include "worker/pipeline.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "compiler/runtime/outcome.h"
#include "compiler/tensor/check.h"
#include "compiler/tensor/target.h"
#include "diapason/v1/process.pb.h"
#include "worker/convert.h"
#include "worker/process_slot.h"
#include "worker/scratch.h"

namespace diapason {
namespace {

// Failures to start in a row after which what waits for the process is given back.
constexpr int kMaxStartFailures = 3;
constexpr size_t kMaxNaivePrograms = 64;
constexpr size_t kMaxBestTimes = 4096;
// Of a run's deadline; the rest is for loading and warming up.
constexpr double kTimingShare = 0.8;

int64_t UnixNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string SecondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

std::string WithDetail(const std::string& text, const std::string& detail) {
  return detail.empty() ? text : text + ": " + detail;
}

// One request on its way through.
struct Job {
  uint64_t handle = 0;
  int device = 0;
  v1::MeasureRequest request;
  Pipeline::Done done;
  std::string target;          // with the device's own number
  v1::MeasureResult result;    // filled in as stages end
  std::shared_ptr<const std::string> program, naive;  // shared with the cache; null: not built yet
  double build_seconds = 0;
  bool load_retried = false;
  bool finished = false;       // its result was given

  bool wants_naive() const {
    return request.mode() == v1::MEASURE_MODE_VERIFY || request.mode() == v1::MEASURE_MODE_TIME_AND_VERIFY;
  }
};
using JobPtr = std::shared_ptr<Job>;  // shared: in queues, in places and in the table of handles at once

// The naive program of a workload for a target, built once for all requests that are verified.
struct NaiveBuild {
  std::string key;
  std::shared_ptr<const std::string> program;  // null while it is being built
  std::vector<JobPtr> waiting;
};
using NaivePtr = std::shared_ptr<NaiveBuild>;

struct BuildTask {
  JobPtr job;      // the candidate's program, or the request that first asked for the naive one
  NaivePtr naive;  // null for a candidate
};

struct BuilderPlace {
  std::unique_ptr<ProcessSlot> slot;
  std::optional<BuildTask> task;
  MeasureStage stage = MeasureStage::kInstantiate;
  double timeout = 0;
  int start_failures = 0;
};

struct RunnerPlace {
  std::unique_ptr<ProcessSlot> slot;
  Target target;
  v1::DeviceDescription description;
  v1::DeviceState state = v1::DEVICE_STATE_RESTARTING;
  std::string state_text;
  std::deque<JobPtr> waiting;
  JobPtr job;
  MeasureStage stage = MeasureStage::kLoad;
  double timeout = 0;
  bool holds_quiet = false;  // builders are stopped for it
  std::string start_failure;
};

struct Command {
  JobPtr submitted;  // or
  uint64_t cancelled = 0;
  std::string reason;
};

}  // namespace

class Pipeline::Impl {
 public:
  explicit Impl(PipelineOptions options) : options_(std::move(options)) {}
  ~Impl() {
    Stop();
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  absl::Status Start();
  uint64_t Submit(int device, const v1::MeasureRequest& request, Done done);
  void Cancel(uint64_t handle, const std::string& reason);
  void Stop();
  const std::vector<v1::DeviceDescription>& devices() const { return descriptions_; }
  int builders() const { return options_.builders; }
  v1::WorkerStatistics Statistics() const;
  std::vector<v1::DeviceStatus> DeviceStates() const;
  int Unfinished(int device) const;

 private:
  // Before the thread.
  absl::Status MakePlaces();
  // The thread.
  void Loop();
  void WaitForEvents();
  void TakeCommands();
  void Wake();
  void Accept(const JobPtr& job);
  void CheckStarted();

  void OnBuilder(BuilderPlace& place, const SlotEvent& event);
  void OnBuilt(BuilderPlace& place, v1::BuildReply& reply);
  void OnBuilderLost(BuilderPlace& place, const SlotEvent& loss);
  void FailBuild(const BuildTask& task, ErrorKind kind, MeasureStage stage, const std::string& text);
  void GiveUpBuildsIfNoBuilder(const std::string& text);
  void OnRunner(RunnerPlace& place, const SlotEvent& event, Instant now);
  void OnRunnerReady(RunnerPlace& place);
  void OnRunnerProgress(RunnerPlace& place, const v1::ProcessProgress& progress, Instant now);
  void OnRan(RunnerPlace& place, v1::RunReply& reply, Instant now);
  void OnRunnerLost(RunnerPlace& place, const SlotEvent& loss, Instant now);
  void OnRunnerStartFailure(RunnerPlace& place, const SlotEvent& failure);

  void BeginBuilds(Instant now);
  void BeginRuns(Instant now);
  void BeginRun(RunnerPlace& place, JobPtr job, Instant now);
  void WantNaive(const JobPtr& job);
  void RunIfBuilt(const JobPtr& job);
  void SetQuiet(RunnerPlace& place, bool quiet, Instant now);
  void NoteBest(const Job& job);
  std::optional<double> BestFor(const Job& job) const;

  void Fail(const JobPtr& job, ErrorKind kind, MeasureStage stage, const std::string& text);
  void Finish(const JobPtr& job);
  void Answer();
  void Publish();
  double Timeout(double wanted, double otherwise) const {
    return std::min(wanted > 0 ? wanted : otherwise, options_.max_timeout_seconds);
  }

  PipelineOptions options_;
  std::vector<v1::DeviceDescription> descriptions_;  // constant after Start
  std::vector<Target> targets_;
  const Instant started_at_ = std::chrono::steady_clock::now();
  int wake_fd_ = -1;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> commands_;      // guarded by mutex_, as all down to the next comment
  uint64_t next_handle_ = 1;
  bool stopping_ = false;
  std::optional<absl::Status> started_;
  v1::WorkerStatistics statistics_;
  std::vector<v1::DeviceStatus> device_states_;
  std::vector<int> unfinished_;

  // Of the thread alone. Places go before the folder that their processes use.
  std::unique_ptr<ScratchFolder> scratch_;
  std::vector<std::unique_ptr<BuilderPlace>> builders_;
  std::vector<std::unique_ptr<RunnerPlace>> runners_;
  std::map<uint64_t, JobPtr> jobs_;  // without a result
  std::vector<JobPtr> answers_;      // with a result that was not given out yet
  std::deque<BuildTask> builds_;
  std::deque<NaivePtr> naive_;  // most recently made last
  std::map<std::string, double> best_;
  int quiet_holders_ = 0;
  v1::WorkerStatistics counts_;  // what is counted and not computed
};

absl::Status Pipeline::Impl::MakePlaces() {
  if (options_.builders <= 0) options_.builders = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (options_.devices.empty()) return absl::InvalidArgumentError("a worker needs at least one device: name one, for instance 'cpu'");
  std::map<std::string, int> named;
  for (const std::string& text : options_.devices) {
    ASSIGN_OR_RETURN(Target target, Target::Parse(text));
    auto place = std::make_unique<RunnerPlace>();
    std::string kind = target.ToString();
    kind = kind.substr(0, kind.find(' '));
    std::string name = kind + ":" + std::to_string(target.device);
    if (named[name]++ > 0) name += "#" + std::to_string(named[name]);  // one processor twice, say
    SlotOptions slot{.name = "runner-" + std::to_string(runners_.size()),
                     .program = options_.program_path,
                     .args = options_.runner_args,
                     .memory_limit_bytes = target.kind == TargetKind::kCuda ? 0 : options_.runner_memory_bytes,
                     .start_timeout_seconds = options_.start_timeout_seconds};
    slot.args.push_back(target.ToString());
    place->slot = std::make_unique<ProcessSlot>(slot, *scratch_);
    place->description.set_name(name);
    place->description.set_target(target.ToString());
    place->target = target;
    targets_.push_back(std::move(target));
    runners_.push_back(std::move(place));
  }
  for (int i = 0; i < options_.builders; ++i) {
    auto place = std::make_unique<BuilderPlace>();
    place->slot = std::make_unique<ProcessSlot>(SlotOptions{.name = "builder-" + std::to_string(i),
                                                            .program = options_.program_path,
                                                            .args = options_.builder_args,
                                                            .memory_limit_bytes = options_.builder_memory_bytes,
                                                            .start_timeout_seconds = options_.start_timeout_seconds,
                                                            .max_jobs = options_.jobs_per_builder},
                                                *scratch_);
    builders_.push_back(std::move(place));
  }
  unfinished_.assign(runners_.size(), 0);
  return absl::OkStatus();
}

absl::Status Pipeline::Impl::Start() {
  ASSIGN_OR_RETURN(scratch_, ScratchFolder::Create(options_.scratch_base));
  RETURN_IF_ERROR(MakePlaces());
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return absl::UnavailableError("the system gives no event descriptor: raise the limit of open files");
  // Children die with the thread that started them, so it is this one that does everything.
  thread_ = std::thread([this] { Loop(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_.has_value(); });
  return *started_;
}

void Pipeline::Impl::Loop() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    TakeCommands();
    Instant now = std::chrono::steady_clock::now();
    for (auto& place : builders_) {
      for (const SlotEvent& event : place->slot->Advance(now)) OnBuilder(*place, event);
    }
    for (auto& place : runners_) {
      for (const SlotEvent& event : place->slot->Advance(now)) OnRunner(*place, event, now);
    }
    BeginRuns(now);
    BeginBuilds(now);
    CheckStarted();
    Publish();
    Answer();
    WaitForEvents();
  }
  builders_.clear();
  runners_.clear();
  scratch_.reset();
  TakeCommands();
  while (!jobs_.empty()) {
    JobPtr job = jobs_.begin()->second;
    job->result.mutable_cancelled()->set_reason("the worker stops");
    Finish(job);
  }
  Answer();
}

void Pipeline::Impl::WaitForEvents() {
  std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
  std::optional<Instant> next;
  auto watch = [&](const ProcessSlot& slot) {
    if (slot.socket() >= 0) fds.push_back({slot.socket(), static_cast<short>(POLLIN | (slot.wants_write() ? POLLOUT : 0)), 0});
    if (auto time = slot.next_time(); time.has_value() && (!next.has_value() || *time < *next)) next = time;
  };
  for (const auto& place : builders_) watch(*place->slot);
  for (const auto& place : runners_) watch(*place->slot);
  int timeout = -1;
  if (next.has_value()) {
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(*next - std::chrono::steady_clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(wait, 0, 1000));
  }
  poll(fds.data(), fds.size(), timeout);
  uint64_t count = 0;
  if (read(wake_fd_, &count, sizeof(count)) < 0) return;  // nothing was there
}

void Pipeline::Impl::Wake() {
  uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof(one)) < 0) return;  // it is full: awake already
}

void Pipeline::Impl::TakeCommands() {
  std::vector<Command> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (command.submitted != nullptr) {
      Accept(command.submitted);
    } else if (auto found = jobs_.find(command.cancelled); found != jobs_.end()) {
      JobPtr job = found->second;
      job->result.mutable_cancelled()->set_reason(command.reason);
      Finish(job);
    }
  }
}

void Pipeline::Impl::Accept(const JobPtr& job) {
  jobs_[job->handle] = job;
  absl::StatusOr<Target> target = Target::Parse(job->request.target());
  if (!target.ok()) return Fail(job, ErrorKind::kInstantiation, MeasureStage::kQueue, std::string(target.status().message()));
  target->device = targets_[job->device].device;
  if (target->arch.empty()) target->arch = targets_[job->device].arch;
  job->target = target->ToString();
  builds_.push_back({job, nullptr});
  if (job->wants_naive()) WantNaive(job);
}

// The first request of a workload has the naive program built; later ones wait for it or find it.
void Pipeline::Impl::WantNaive(const JobPtr& job) {
  std::string key = job->target + "\n" + job->request.workload();
  auto found = std::find_if(naive_.begin(), naive_.end(), [&](const NaivePtr& n) { return n->key == key; });
  if (found != naive_.end()) {
    job->naive = (*found)->program;
    if (job->naive == nullptr) (*found)->waiting.push_back(job);
    return;
  }
  auto naive = std::make_shared<NaiveBuild>();
  naive->key = std::move(key);
  naive->waiting.push_back(job);
  naive_.push_back(naive);
  if (naive_.size() > kMaxNaivePrograms) naive_.pop_front();
  builds_.push_back({job, naive});
}

void Pipeline::Impl::CheckStarted() {
  std::lock_guard lock(mutex_);
  if (started_.has_value()) return;
  bool all_ready = true;
  for (const auto& place : runners_) {
    if (!place->start_failure.empty()) {
      started_ = absl::UnavailableError("the runner of '" + place->description.target() + "' does not start: " + place->start_failure);
    }
    all_ready = all_ready && place->state == v1::DEVICE_STATE_READY;
  }
  if (!started_.has_value() && all_ready) {
    for (const auto& place : runners_) descriptions_.push_back(place->description);
    started_ = absl::OkStatus();
  }
  if (started_.has_value()) changed_.notify_all();
}

// ---- builders

void Pipeline::Impl::BeginBuilds(Instant now) {
  for (auto& place : builders_) {
    if (quiet_holders_ > 0) return;
    if (!place->slot->idle()) continue;
    while (!builds_.empty() && builds_.front().job->finished && builds_.front().naive == nullptr) builds_.pop_front();
    if (builds_.empty()) return;
    BuildTask task = std::move(builds_.front());
    builds_.pop_front();
    const v1::MeasureRequest& request = task.job->request;
    place->timeout = Timeout(request.build_timeout_seconds(), options_.build_timeout_seconds);
    place->stage = MeasureStage::kInstantiate;
    if (task.naive == nullptr) task.job->result.mutable_times()->set_build_started_at(UnixNanos());
    v1::ProcessMessage message;
    v1::BuildJob& build = *message.mutable_build();
    build.set_workload(request.workload());
    build.set_target(task.job->target);
    build.set_naive(task.naive != nullptr);
    if (task.naive == nullptr) build.set_schedule(request.schedule());
    *build.mutable_facts() = runners_[task.job->device]->description.facts();
    // Ours is the deadline that counts: it stands still in pauses, of which the builder knows nothing.
    build.set_timeout_seconds(options_.max_timeout_seconds);
    place->task = std::move(task);
    place->slot->Begin(message, place->timeout, now);
  }
}

void Pipeline::Impl::OnBuilder(BuilderPlace& place, const SlotEvent& event) {
  switch (event.kind) {
    case SlotEvent::Kind::kReady: place.start_failures = 0; break;
    case SlotEvent::Kind::kStartFailure:
      place.start_failures = event.failures;
      GiveUpBuildsIfNoBuilder(event.text);
      break;
    case SlotEvent::Kind::kLoss: OnBuilderLost(place, event); break;
    case SlotEvent::Kind::kMessage:
      if (event.message->has_built()) OnBuilt(place, *event.message->mutable_built());
      if (event.message->has_progress()) place.stage = ParseStage(event.message->progress().stage()).value_or(place.stage);
      break;
  }
}

void Pipeline::Impl::OnBuilt(BuilderPlace& place, v1::BuildReply& reply) {
  BuildTask task = *std::exchange(place.task, std::nullopt);
  counts_.set_builds(counts_.builds() + 1);
  if (reply.has_error()) {
    MeasureError error = FromProto(reply.error());
    FailBuild(task, error.kind, error.stage, error.text);
    return;
  }
  auto program = std::make_shared<const std::string>(std::move(*reply.mutable_program()));
  if (task.naive != nullptr) {
    task.naive->program = program;
    for (const JobPtr& job : std::exchange(task.naive->waiting, {})) {
      job->naive = program;
      RunIfBuilt(job);
    }
    return;
  }
  Job& job = *task.job;
  job.program = std::move(program);
  job.build_seconds = reply.seconds();
  job.result.set_compiler(reply.compiler());
  *job.result.mutable_registers() = reply.registers();
  *job.result.mutable_spill_bytes() = reply.spill_bytes();
  job.result.mutable_times()->set_build_ended_at(UnixNanos());
  RunIfBuilt(task.job);
}

void Pipeline::Impl::OnBuilderLost(BuilderPlace& place, const SlotEvent& loss) {
  BuildTask task = *std::exchange(place.task, std::nullopt);
  counts_.set_builds(counts_.builds() + 1);
  switch (loss.loss) {
    case LossKind::kDeadline:
      return FailBuild(task, ErrorKind::kBuildTimeout, place.stage,
                       WithDetail("not built within " + SecondsText(place.timeout), loss.text));
    case LossKind::kCrash: return FailBuild(task, ErrorKind::kBuildCrash, place.stage, "builder: " + loss.text);
    case LossKind::kOutOfMemory: return FailBuild(task, ErrorKind::kOutOfMemory, place.stage, "builder: " + loss.text);
    case LossKind::kKilled: return FailBuild(task, ErrorKind::kInfrastructure, place.stage, "builder: " + loss.text);
  }
}

void Pipeline::Impl::FailBuild(const BuildTask& task, ErrorKind kind, MeasureStage stage, const std::string& text) {
  counts_.set_failed_builds(counts_.failed_builds() + 1);
  if (task.naive == nullptr) {
    task.job->result.mutable_times()->set_build_ended_at(UnixNanos());
    return Fail(task.job, kind, stage, text);
  }
  // A reference that cannot be had says nothing of the candidates; the next one to ask has it tried again.
  std::erase(naive_, task.naive);
  for (const JobPtr& job : task.naive->waiting) {
    Fail(job, ErrorKind::kInfrastructure, stage, WithDetail("the naive evaluation could not be built", text));
  }
}

void Pipeline::Impl::GiveUpBuildsIfNoBuilder(const std::string& text) {
  bool none = std::all_of(builders_.begin(), builders_.end(),
                          [](const auto& place) { return place->start_failures >= kMaxStartFailures; });
  if (!none) return;
  for (const BuildTask& task : std::exchange(builds_, {})) {
    FailBuild(task, ErrorKind::kInfrastructure, MeasureStage::kQueue, "no builder starts: " + text);
  }
}

// ---- runners

void Pipeline::Impl::RunIfBuilt(const JobPtr& job) {
  if (job->finished || job->program == nullptr || (job->wants_naive() && job->naive == nullptr)) return;
  RunnerPlace& place = *runners_[job->device];
  if (place.state == v1::DEVICE_STATE_QUARANTINED) {
    return Fail(job, ErrorKind::kInfrastructure, MeasureStage::kQueue, "the runner does not start: " + place.state_text);
  }
  place.waiting.push_back(job);
}

void Pipeline::Impl::BeginRuns(Instant now) {
  for (auto& place : runners_) {
    while (!place->waiting.empty() && place->waiting.front()->finished) place->waiting.pop_front();
    if (!place->slot->idle() || place->waiting.empty()) continue;
    JobPtr job = std::move(place->waiting.front());
    place->waiting.pop_front();
    BeginRun(*place, std::move(job), now);
  }
}

void Pipeline::Impl::BeginRun(RunnerPlace& place, JobPtr job, Instant now) {
  place.timeout = Timeout(job->request.run_timeout_seconds(), options_.run_timeout_seconds);
  place.stage = MeasureStage::kLoad;
  job->result.mutable_times()->set_run_started_at(UnixNanos());
  v1::ProcessMessage message;
  v1::RunJob& run = *message.mutable_run();
  run.set_workload(job->request.workload());
  run.set_program(*job->program);
  if (job->naive != nullptr) run.set_naive_program(*job->naive);
  *run.mutable_timing() = job->request.timing();
  run.set_mode(job->request.mode());
  if (auto best = BestFor(*job); best.has_value()) run.set_best_seconds(*best);
  run.set_input_seed(job->request.input_seed());
  run.set_quiet(options_.quiet_timing && place.target.kind != TargetKind::kCuda);
  run.set_target(job->target);
  run.set_max_timing_seconds(kTimingShare * place.timeout);
  place.job = std::move(job);
  place.slot->Begin(message, place.timeout, now);
}

void Pipeline::Impl::OnRunner(RunnerPlace& place, const SlotEvent& event, Instant now) {
  switch (event.kind) {
    case SlotEvent::Kind::kReady: OnRunnerReady(place); break;
    case SlotEvent::Kind::kStartFailure: OnRunnerStartFailure(place, event); break;
    case SlotEvent::Kind::kLoss: OnRunnerLost(place, event, now); break;
    case SlotEvent::Kind::kMessage:
      if (event.message->has_ran()) OnRan(place, *event.message->mutable_ran(), now);
      if (event.message->has_progress()) OnRunnerProgress(place, event.message->progress(), now);
      break;
  }
}

void Pipeline::Impl::OnRunnerReady(RunnerPlace& place) {
  place.state = v1::DEVICE_STATE_READY;
  place.state_text.clear();
  place.start_failure.clear();
  *place.description.mutable_facts() = place.slot->ready_message()->ready().facts();
  place.description.set_state(v1::DEVICE_STATE_READY);
}

void Pipeline::Impl::OnRunnerProgress(RunnerPlace& place, const v1::ProcessProgress& progress, Instant now) {
  place.stage = ParseStage(progress.stage()).value_or(place.stage);
  if (place.stage == MeasureStage::kVerify) {
    place.slot->ExtendDeadline(Timeout(place.job->request.verify_timeout_seconds(), options_.verify_timeout_seconds), now);
  }
  SetQuiet(place, progress.await_go(), now);
  if (!progress.await_go()) return;
  v1::ProcessMessage go;
  go.mutable_go();
  place.slot->Send(go);
}

void Pipeline::Impl::SetQuiet(RunnerPlace& place, bool quiet, Instant now) {
  if (place.holds_quiet == quiet) return;
  place.holds_quiet = quiet;
  quiet_holders_ += quiet ? 1 : -1;
  if (quiet_holders_ == (quiet ? 1 : 0)) {
    for (auto& builder : builders_) quiet ? builder->slot->Pause(now) : builder->slot->Resume(now);
  }
}

void Pipeline::Impl::OnRan(RunnerPlace& place, v1::RunReply& reply, Instant now) {
  SetQuiet(place, false, now);
  if (reply.device_lost()) place.state = v1::DEVICE_STATE_RESTARTING;
  JobPtr job = std::exchange(place.job, nullptr);
  counts_.set_runs(counts_.runs() + 1);
  if (reply.has_error()) counts_.set_failed_runs(counts_.failed_runs() + 1);
  job->result.mutable_times()->set_run_ended_at(UnixNanos());
  if (job->finished) return;
  if (reply.has_verification()) *job->result.mutable_verification() = std::move(*reply.mutable_verification());
  if (reply.has_clocks()) *job->result.mutable_on()->mutable_clocks() = reply.clocks();
  if (reply.has_error()) {
    *job->result.mutable_error() = std::move(*reply.mutable_error());
  } else {
    *job->result.mutable_timing() = std::move(*reply.mutable_timing());
    job->result.mutable_timing()->set_build_seconds(job->build_seconds);
    NoteBest(*job);
  }
  Finish(job);
}

void Pipeline::Impl::OnRunnerLost(RunnerPlace& place, const SlotEvent& loss, Instant now) {
  SetQuiet(place, false, now);
  place.state = v1::DEVICE_STATE_RESTARTING;
  JobPtr job = std::exchange(place.job, nullptr);
  counts_.set_runs(counts_.runs() + 1);
  counts_.set_failed_runs(counts_.failed_runs() + 1);
  job->result.mutable_times()->set_run_ended_at(UnixNanos());
  bool loading = place.stage == MeasureStage::kLoad;
  if (loss.loss == LossKind::kCrash && loading && place.slot->jobs_before() > 0 && !job->load_retried) {
    job->load_retried = true;
    place.waiting.push_front(job);
    return;
  }
  std::string text = "runner: " + loss.text;
  switch (loss.loss) {
    case LossKind::kDeadline:
      text = WithDetail("not finished within " + SecondsText(place.timeout), loss.text);
      if (place.stage == MeasureStage::kRun) return Fail(job, ErrorKind::kRunTimeout, place.stage, text);
      // Nothing of the candidate was running.
      return Fail(job, ErrorKind::kInfrastructure, place.stage,
                  loading ? text : WithDetail("the naive evaluation did not finish in time", loss.text));
    case LossKind::kCrash: return Fail(job, ErrorKind::kRunCrash, place.stage, text);
    case LossKind::kOutOfMemory: return Fail(job, ErrorKind::kOutOfMemory, place.stage, text);
    case LossKind::kKilled: return Fail(job, ErrorKind::kInfrastructure, place.stage, text);
  }
}

void Pipeline::Impl::OnRunnerStartFailure(RunnerPlace& place, const SlotEvent& failure) {
  place.start_failure = failure.text;
  place.state_text = failure.text;
  place.state = failure.failures >= kMaxStartFailures ? v1::DEVICE_STATE_QUARANTINED : v1::DEVICE_STATE_RESTARTING;
  if (place.state != v1::DEVICE_STATE_QUARANTINED) return;
  for (const JobPtr& job : std::exchange(place.waiting, {})) {
    Fail(job, ErrorKind::kInfrastructure, MeasureStage::kQueue, "the runner does not start: " + failure.text);
  }
}

// ---- times to race against

std::string RaceKey(const Job& job) { return std::to_string(job.device) + job.target + "\n" + job.request.workload(); }

void Pipeline::Impl::NoteBest(const Job& job) {
  Timing timing = FromProto(job.result.timing());
  if (timing.samples.empty() || timing.raced_out) return;
  if (best_.size() >= kMaxBestTimes) best_.clear();
  double median = MedianSeconds(timing);
  auto [entry, added] = best_.emplace(RaceKey(job), median);
  entry->second = std::min(entry->second, median);
}

std::optional<double> Pipeline::Impl::BestFor(const Job& job) const {
  std::optional<double> best;
  if (job.request.has_best_seconds() && job.request.best_seconds() > 0) best = job.request.best_seconds();
  if (auto known = best_.find(RaceKey(job)); known != best_.end()) best = std::min(best.value_or(known->second), known->second);
  return best;
}

// ---- results

void Pipeline::Impl::Fail(const JobPtr& job, ErrorKind kind, MeasureStage stage, const std::string& text) {
  if (job->finished) return;
  SetError(kind, stage, text, *job->result.mutable_error());
  Finish(job);
}

void Pipeline::Impl::Finish(const JobPtr& job) {
  if (job->finished) return;
  job->finished = true;
  job->result.set_id(job->request.id());
  if (job->result.times().run_started_at() > 0) {
    const v1::DeviceDescription& device = descriptions_[job->device];
    v1::MeasuredOn& on = *job->result.mutable_on();
    on.set_device(device.name());
    on.set_model(device.facts().model());
    on.set_uuid(device.facts().uuid());
    on.set_driver(device.facts().driver());
  }
  jobs_.erase(job->handle);
  job->program.reset();
  job->naive.reset();
  answers_.push_back(job);
}

// After the statistics, so that who has all results also finds them counted.
void Pipeline::Impl::Answer() {
  for (const JobPtr& job : std::exchange(answers_, {})) {
    {
      std::lock_guard lock(mutex_);
      --unfinished_[job->device];
    }
    job->done(job->result);
  }
}

void Pipeline::Impl::Publish() {
  v1::WorkerStatistics statistics = counts_;
  std::vector<v1::DeviceStatus> states;
  double builder_seconds = 0, runner_seconds = 0;
  uint64_t builder_restarts = 0, runner_restarts = 0;
  size_t waiting_for_runner = 0;
  for (const auto& place : builders_) {
    builder_seconds += place->slot->busy_seconds();
    builder_restarts += place->slot->restarts();
  }
  for (const auto& place : runners_) {
    runner_seconds += place->slot->busy_seconds();
    runner_restarts += place->slot->restarts();
    waiting_for_runner += place->waiting.size();
    v1::DeviceStatus& state = states.emplace_back();
    state.set_device(place->description.name());
    state.set_state(place->state);
    state.set_text(place->state_text);
  }
  statistics.set_builder_busy_seconds(builder_seconds);
  statistics.set_runner_busy_seconds(runner_seconds);
  statistics.set_builder_restarts(builder_restarts);
  statistics.set_runner_restarts(runner_restarts);
  statistics.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - started_at_).count());
  statistics.set_builders(static_cast<uint32_t>(builders_.size()));
  statistics.set_devices(static_cast<uint32_t>(runners_.size()));
  statistics.set_waiting_for_builder(static_cast<uint32_t>(builds_.size()));
  statistics.set_waiting_for_runner(static_cast<uint32_t>(waiting_for_runner));
  std::lock_guard lock(mutex_);
  statistics_ = std::move(statistics);
  device_states_ = std::move(states);
}

// ---- other threads

uint64_t Pipeline::Impl::Submit(int device, const v1::MeasureRequest& request, Done done) {
  auto job = std::make_shared<Job>();
  job->device = device;
  job->request = request;
  job->done = std::move(done);
  uint64_t handle = 0;
  bool stopped = false;
  {
    std::lock_guard lock(mutex_);
    handle = job->handle = next_handle_++;
    stopped = stopping_;
    if (!stopped) {
      ++unfinished_[device];
      commands_.push_back({job, 0, ""});
    }
  }
  Wake();
  if (stopped) {
    job->result.set_id(request.id());
    job->result.mutable_cancelled()->set_reason("the worker stops");
    job->done(job->result);
  }
  return handle;
}

void Pipeline::Impl::Cancel(uint64_t handle, const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back({nullptr, handle, reason});
  }
  Wake();
}

void Pipeline::Impl::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (wake_fd_ >= 0) Wake();
  if (thread_.joinable()) thread_.join();
}

v1::WorkerStatistics Pipeline::Impl::Statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

std::vector<v1::DeviceStatus> Pipeline::Impl::DeviceStates() const {
  std::lock_guard lock(mutex_);
  return device_states_;
}

int Pipeline::Impl::Unfinished(int device) const {
  std::lock_guard lock(mutex_);
  return unfinished_[device];
}

// ---- the public face

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Start(PipelineOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Pipeline>(new Pipeline(std::move(impl)));
}

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;
const std::vector<v1::DeviceDescription>& Pipeline::devices() const { return impl_->devices(); }
uint64_t Pipeline::Submit(int device, const v1::MeasureRequest& request, Done done) {
  return impl_->Submit(device, request, std::move(done));
}
void Pipeline::Cancel(uint64_t handle, const std::string& reason) { impl_->Cancel(handle, reason); }
v1::WorkerStatistics Pipeline::Statistics() const { return impl_->Statistics(); }
std::vector<v1::DeviceStatus> Pipeline::DeviceStates() const { return impl_->DeviceStates(); }
int Pipeline::Unfinished(int device) const { return impl_->Unfinished(device); }
int Pipeline::builders() const { return impl_->builders(); }
void Pipeline::Stop() { impl_->Stop(); }

}  // namespace diapason
