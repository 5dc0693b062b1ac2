#include "worker/pipeline/pipeline.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/mutex.h"
#include "compiler/tensor/target.h"
#include "diapason/v1/process.pb.h"
#include "worker/pipeline/builders.h"
#include "worker/pipeline/builds.h"
#include "worker/pipeline/job.h"
#include "worker/pipeline/jobs.h"
#include "worker/pipeline/process_slot.h"
#include "worker/pipeline/runners.h"
#include "worker/process/host_memory.h"
#include "worker/process/scratch.h"

namespace diapason {
namespace {

using pipeline::Job;
using pipeline::JobPtr;

// Compilers of GPU programs map some gigabytes whatever they need of them.
constexpr int64_t kLeastMemoryLimit = int64_t{4} << 30;

// Of a builder or runner: so that one alone cannot use up the host.
int64_t MemoryLimit(int64_t given) { return given > 0 ? given : std::max(kLeastMemoryLimit, HostMemoryBytes() / 2); }

}  // namespace

// The thread of a pipeline, over the parts of worker/pipeline, and the way to it and back.
class Pipeline::Impl {
 public:
  // `no_sandbox`: why there is none although it is wanted; empty: looks for one.
  explicit Impl(PipelineOptions options, std::string no_sandbox = "")
      : options_(WithBuilders(std::move(options))), sandbox_(Sandbox::None(std::move(no_sandbox))) {}
  ~Impl() {
    Stop();
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  absl::Status Start();
  uint64_t Submit(int device, const v1::MeasureRequest& request, Done done);
  void Cancel(uint64_t handle, const std::string& reason);
  void Stop();
  const std::vector<v1::DeviceDescription>& devices() const { return descriptions_; }
  const Sandbox& sandbox() const { return sandbox_; }
  int builders() const { return options_.builders; }
  v1::WorkerStatistics Statistics() const;
  std::vector<v1::DeviceStatus> DeviceStates() const;
  std::vector<v1::DeviceStatistics> DeviceCounts() const;
  int Unfinished(int device) const;

 private:
  struct Command {
    JobPtr submitted;  // or
    uint64_t cancelled = 0;
    std::string reason;
  };

  static PipelineOptions WithBuilders(PipelineOptions options);
  // Before the thread.
  absl::Status MakePlaces();
  SlotOptions BuilderSlot(int number, bool devices) const;
  SlotOptions RunnerSlot(int number, const Target& target) const;
  // The thread.
  void Loop();
  void WaitForEvents();
  void TakeCommands();
  void Wake();
  void Accept(const JobPtr& job);
  void CheckStarted();
  void Answer();
  void Publish();

  const PipelineOptions options_;
  Sandbox sandbox_;                                  // constant after Start
  std::vector<v1::DeviceDescription> descriptions_;  // constant after Start
  const Instant started_at_ = std::chrono::steady_clock::now();
  int wake_fd_ = -1;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerStatistics statistics_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::DeviceStatus> device_states_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::DeviceStatistics> device_counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> unfinished_ ABSL_GUARDED_BY(mutex_);

  // Of the thread alone. Places go before the folder that their processes use.
  std::unique_ptr<ScratchFolder> scratch_;
  v1::WorkerStatistics counts_;  // what is counted and not computed
  // Each knows those above it, and asks others by what it is given.
  pipeline::Jobs jobs_{descriptions_,
                       [this](const JobPtr& probe) { runners_.ProbeEnded(probe, std::chrono::steady_clock::now()); }};
  pipeline::Builds builds_{
      options_, jobs_, counts_,
      [this](int device) -> const v1::DeviceFacts& { return runners_.description(device).facts(); },
      [this](const JobPtr& job) { runners_.TakeBuilt(job); }};
  pipeline::Builders builders_{options_, builds_, counts_};
  pipeline::Runners runners_{options_,
                             jobs_,
                             counts_,
                             {[this](bool quiet, Instant now) { builders_.Quiet(quiet, now); },
                              [this](const JobPtr& probe) { builds_.WantReference(probe); }}};
};

PipelineOptions Pipeline::Impl::WithBuilders(PipelineOptions options) {
  if (options.builders <= 0) options.builders = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return options;
}

SlotOptions Pipeline::Impl::RunnerSlot(int number, const Target& target) const {
  SlotOptions slot{
      .name = "runner-" + std::to_string(number),
      .program = options_.program_path,
      .args = options_.runner_args,
      .keep_environment = options_.keep_environment,
      .devices = true,
      .memory_limit_bytes = target.kind == TargetKind::kCuda ? 0 : MemoryLimit(options_.runner_memory_bytes),
      .start_timeout_seconds = options_.start_timeout_seconds};
  slot.args.push_back(target.ToString());
  return slot;
}

// `devices`: of opencl, whose drivers compile.
SlotOptions Pipeline::Impl::BuilderSlot(int number, bool devices) const {
  return {.name = "builder-" + std::to_string(number),
          .program = options_.program_path,
          .args = options_.builder_args,
          .keep_environment = options_.keep_environment,
          .devices = devices,
          .memory_limit_bytes = MemoryLimit(options_.builder_memory_bytes),
          .start_timeout_seconds = options_.start_timeout_seconds,
          .max_jobs = options_.jobs_per_builder};
}

absl::Status Pipeline::Impl::MakePlaces() {
  if (options_.devices.empty())
    return absl::InvalidArgumentError("a worker needs at least one device: name one, for instance 'cpu'");
  std::map<std::string, int> named;
  bool any_opencl = false;
  for (const std::string& text : options_.devices) {
    ASSIGN_OR_RETURN(const Target target, Target::Parse(text));
    std::string kind = target.ToString();
    kind = kind.substr(0, kind.find(' '));
    std::string name = kind + ":" + std::to_string(target.device);
    if (named[name]++ > 0) name += "#" + std::to_string(named[name]);  // one processor twice, say
    const SlotOptions slot = RunnerSlot(static_cast<int>(runners_.size()), target);
    runners_.Add(std::make_unique<ProcessSlot>(slot, sandbox_, *scratch_), target, name);
    any_opencl = any_opencl || target.kind == TargetKind::kOpenCl;
  }
  for (int i = 0; i < options_.builders; ++i)
    builders_.Add(std::make_unique<ProcessSlot>(BuilderSlot(i, any_opencl), sandbox_, *scratch_));
  MutexLock lock(mutex_);
  unfinished_.assign(runners_.size(), 0);
  return absl::OkStatus();
}

absl::Status Pipeline::Impl::Start() {
  ASSIGN_OR_RETURN(scratch_, ScratchFolder::Create(options_.scratch_base));
  if (sandbox_.why_not().empty()) {
    ASSIGN_OR_RETURN(sandbox_, Sandbox::Find(options_.sandbox, *scratch_));
  }
  RETURN_IF_ERROR(MakePlaces());
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0)
    return absl::UnavailableError("the system gives no event descriptor: raise the limit of open files");
  // Children die with the thread that started them, so it is this one that does everything.
  thread_ = std::thread([this] { Loop(); });
  MutexLock lock(mutex_);
  changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return started_.has_value(); });
  return *started_;
}

void Pipeline::Impl::Loop() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_) break;
    }
    TakeCommands();
    Instant now = std::chrono::steady_clock::now();
    builders_.Advance(now);
    runners_.Advance(now);
    runners_.BeginProbes(now);
    runners_.Begin(now);
    builders_.Begin(now);
    CheckStarted();
    Publish();
    Answer();
    WaitForEvents();
  }
  builders_.Clear();
  runners_.Clear();
  scratch_.reset();
  TakeCommands();
  jobs_.CancelAll("the worker stops");
  Answer();
}

void Pipeline::Impl::WaitForEvents() {
  std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
  std::optional<Instant> next;
  const auto sooner = [&](std::optional<Instant> time) {
    if (time.has_value() && (!next.has_value() || *time < *next)) next = time;
  };
  const auto watch = [&](const ProcessSlot& slot) {
    if (slot.socket() >= 0)
      fds.push_back({slot.socket(), static_cast<short>(POLLIN | (slot.wants_write() ? POLLOUT : 0)), 0});
    sooner(slot.next_time());
  };
  builders_.ForEach(watch);
  runners_.ForEach([&](const ProcessSlot& slot, std::optional<Instant> probe) {
    watch(slot);
    sooner(probe);
  });
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
    MutexLock lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (command.submitted != nullptr) {
      Accept(command.submitted);
    } else {
      jobs_.Cancel(command.cancelled, command.reason);
    }
  }
}

void Pipeline::Impl::Accept(const JobPtr& job) {
  jobs_.Add(job);
  if (runners_.size() == 0) return;  // the pipeline stops, and answers all
  absl::StatusOr<Target> target = Target::Parse(job->request.target());
  if (!target.ok())
    return jobs_.Fail(job, ErrorKind::kInstantiation, MeasureStage::kQueue, std::string(target.status().message()));
  const v1::MeasureRequest& request = job->request;
  const auto network_bytes = request.has_network() ? static_cast<int64_t>(request.network().ByteSizeLong()) : 0;
  const auto bytes = static_cast<int64_t>(request.workload().size() + request.schedule().size()) + network_bytes;
  if (absl::Status small = CheckBytes(bytes, options_.limits); !small.ok())
    return jobs_.Fail(job, ErrorKind::kInstantiation, MeasureStage::kQueue, std::string(small.message()));
  if (target->arch.empty()) target->arch = runners_.target(job->device).arch;
  target->device = 0;
  job->shared_target = target->ToString();
  target->device = runners_.target(job->device).device;
  job->target = target->ToString();
  builds_.Add(job);
}

void Pipeline::Impl::CheckStarted() {
  MutexLock lock(mutex_);
  if (started_.has_value()) return;
  started_ = runners_.Started();
  if (!started_.has_value()) return;
  if (started_->ok()) {
    for (size_t d = 0; d < runners_.size(); ++d) descriptions_.push_back(runners_.description(static_cast<int>(d)));
  }
  changed_.NotifyAll();
}

// After the statistics, so that who has all results also finds them counted.
void Pipeline::Impl::Answer() {
  for (const JobPtr& job : jobs_.TakeAnswers()) {
    {
      MutexLock lock(mutex_);
      --unfinished_[job->device];
    }
    job->done(job->result);
  }
}

void Pipeline::Impl::Publish() {
  v1::WorkerStatistics statistics = counts_;
  builders_.AddTo(statistics);
  runners_.AddTo(statistics);
  statistics.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - started_at_).count());
  statistics.set_waiting_for_builder(static_cast<uint32_t>(builds_.size()));
  std::vector<v1::DeviceStatus> states = runners_.States();
  std::vector<v1::DeviceStatistics> counts = runners_.Counts();
  MutexLock lock(mutex_);
  statistics_ = std::move(statistics);
  device_states_ = std::move(states);
  device_counts_ = std::move(counts);
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
    MutexLock lock(mutex_);
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
    MutexLock lock(mutex_);
    commands_.push_back({nullptr, handle, reason});
  }
  Wake();
}

void Pipeline::Impl::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (wake_fd_ >= 0) Wake();
  if (thread_.joinable()) thread_.join();
}

v1::WorkerStatistics Pipeline::Impl::Statistics() const {
  MutexLock lock(mutex_);
  return statistics_;
}

std::vector<v1::DeviceStatus> Pipeline::Impl::DeviceStates() const {
  MutexLock lock(mutex_);
  return device_states_;
}

std::vector<v1::DeviceStatistics> Pipeline::Impl::DeviceCounts() const {
  MutexLock lock(mutex_);
  return device_counts_;
}

int Pipeline::Impl::Unfinished(int device) const {
  MutexLock lock(mutex_);
  return unfinished_[device];
}

// ---- the public face

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Start(PipelineOptions options) {
  auto impl = std::make_unique<Impl>(options);
  absl::Status started = impl->Start();
  if (!started.ok() && options.sandbox == SandboxMode::kAuto && impl->sandbox().in_force()) {
    impl = std::make_unique<Impl>(std::move(options), "inside, " + std::string(started.message()));
    started = impl->Start();
  }
  RETURN_IF_ERROR(started);
  return std::unique_ptr<Pipeline>(new Pipeline(std::move(impl)));
}

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;
const std::vector<v1::DeviceDescription>& Pipeline::devices() const { return impl_->devices(); }
const Sandbox& Pipeline::sandbox() const { return impl_->sandbox(); }
uint64_t Pipeline::Submit(int device, const v1::MeasureRequest& request, Done done) {
  return impl_->Submit(device, request, std::move(done));
}
void Pipeline::Cancel(uint64_t handle, const std::string& reason) { impl_->Cancel(handle, reason); }
v1::WorkerStatistics Pipeline::Statistics() const { return impl_->Statistics(); }
std::vector<v1::DeviceStatus> Pipeline::DeviceStates() const { return impl_->DeviceStates(); }
std::vector<v1::DeviceStatistics> Pipeline::DeviceCounts() const { return impl_->DeviceCounts(); }
int Pipeline::Unfinished(int device) const { return impl_->Unfinished(device); }
int Pipeline::builders() const { return impl_->builders(); }
void Pipeline::Stop() { impl_->Stop(); }

}  // namespace diapason
