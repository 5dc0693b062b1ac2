#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "worker/convert.h"
#include "worker/host_memory.h"
#include "worker/pipeline_impl.h"

namespace diapason {
namespace {

// Compilers of GPU programs map some gigabytes whatever they need of them.
constexpr int64_t kLeastMemoryLimit = int64_t{4} << 30;

// Of a builder or runner: so that one alone cannot use up the host.
int64_t MemoryLimit(int64_t given) { return given > 0 ? given : std::max(kLeastMemoryLimit, HostMemoryBytes() / 2); }

}  // namespace

std::string SecondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

std::string WithDetail(const std::string& text, const std::string& detail) {
  return detail.empty() ? text : text + ": " + detail;
}

absl::Status Pipeline::Impl::MakePlaces() {
  if (options_.builders <= 0) options_.builders = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (options_.devices.empty())
    return absl::InvalidArgumentError("a worker needs at least one device: name one, for instance 'cpu'");
  std::map<std::string, int> named;
  bool any_opencl = false;
  for (const std::string& text : options_.devices) {
    ASSIGN_OR_RETURN(Target target, Target::Parse(text));
    auto place = std::make_unique<RunnerPlace>();
    std::string kind = target.ToString();
    kind = kind.substr(0, kind.find(' '));
    std::string name = kind + ":" + std::to_string(target.device);
    if (named[name]++ > 0) name += "#" + std::to_string(named[name]);  // one processor twice, say
    SlotOptions slot{
        .name = "runner-" + std::to_string(runners_.size()),
        .program = options_.program_path,
        .args = options_.runner_args,
        .keep_environment = options_.keep_environment,
        .devices = true,
        .memory_limit_bytes = target.kind == TargetKind::kCuda ? 0 : MemoryLimit(options_.runner_memory_bytes),
        .start_timeout_seconds = options_.start_timeout_seconds};
    slot.args.push_back(target.ToString());
    place->slot = std::make_unique<ProcessSlot>(slot, sandbox_, *scratch_);
    place->description.set_name(name);
    place->description.set_target(target.ToString());
    place->target = target;
    any_opencl = any_opencl || target.kind == TargetKind::kOpenCl;
    targets_.push_back(std::move(target));
    runners_.push_back(std::move(place));
  }
  for (int i = 0; i < options_.builders; ++i) {
    auto place = std::make_unique<BuilderPlace>();
    place->slot =
        std::make_unique<ProcessSlot>(SlotOptions{.name = "builder-" + std::to_string(i),
                                                  .program = options_.program_path,
                                                  .args = options_.builder_args,
                                                  .keep_environment = options_.keep_environment,
                                                  .devices = any_opencl,  // whose drivers compile
                                                  .memory_limit_bytes = MemoryLimit(options_.builder_memory_bytes),
                                                  .start_timeout_seconds = options_.start_timeout_seconds,
                                                  .max_jobs = options_.jobs_per_builder},
                                      sandbox_, *scratch_);
    builders_.push_back(std::move(place));
  }
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
    for (auto& place : builders_) {
      for (const SlotEvent& event : place->slot->Advance(now)) OnBuilder(*place, event);
    }
    for (auto& place : runners_) {
      for (const SlotEvent& event : place->slot->Advance(now)) OnRunner(*place, event, now);
    }
    BeginProbes(now);
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
    if (slot.socket() >= 0)
      fds.push_back({slot.socket(), static_cast<short>(POLLIN | (slot.wants_write() ? POLLOUT : 0)), 0});
    if (auto time = slot.next_time(); time.has_value() && (!next.has_value() || *time < *next)) next = time;
  };
  for (const auto& place : builders_) watch(*place->slot);
  for (const auto& place : runners_) {
    watch(*place->slot);
    if (auto time = NextProbe(*place); time.has_value() && (!next.has_value() || *time < *next)) next = time;
  }
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
    } else if (auto found = jobs_.find(command.cancelled); found != jobs_.end()) {
      JobPtr job = found->second;
      job->result.mutable_cancelled()->set_reason(command.reason);
      Finish(job);
    }
  }
}

void Pipeline::Impl::Accept(const JobPtr& job) {
  jobs_[job->handle] = job;
  if (runners_.empty()) return;  // the pipeline stops, and answers all
  absl::StatusOr<Target> target = Target::Parse(job->request.target());
  if (!target.ok())
    return Fail(job, ErrorKind::kInstantiation, MeasureStage::kQueue, std::string(target.status().message()));
  const v1::MeasureRequest& request = job->request;
  const auto network_bytes = request.has_network() ? static_cast<int64_t>(request.network().ByteSizeLong()) : 0;
  const auto bytes = static_cast<int64_t>(request.workload().size() + request.schedule().size()) + network_bytes;
  if (absl::Status small = CheckBytes(bytes, options_.limits); !small.ok())
    return Fail(job, ErrorKind::kInstantiation, MeasureStage::kQueue, std::string(small.message()));
  if (target->arch.empty()) target->arch = targets_[job->device].arch;
  target->device = 0;
  job->shared_target = target->ToString();
  target->device = targets_[job->device].device;
  job->target = target->ToString();
  if (request.has_network()) return AcceptNetwork(job);
  const BuildTask candidate{job, nullptr};
  const BuiltProgram* known = built_.Find(BuildKey(candidate));
  if (known == nullptr) builds_.push_back(candidate);
  if (job->wants_reference()) WantReference(job);
  if (known != nullptr) TakeBuilt(candidate, *known);
}

// The first request of a workload has the reference program built; later ones wait for it or find it.
void Pipeline::Impl::WantReference(const JobPtr& job) {
  const auto reference = std::make_shared<ReferenceBuild>();
  const BuildTask task{job, reference};
  reference->key = BuildKey(task);
  if (const BuiltProgram* known = built_.Find(reference->key)) {
    job->reference = known->program;
    return;
  }
  const auto under_way = std::find_if(references_.begin(), references_.end(),
                                      [&](const ReferencePtr& n) { return n->key == reference->key; });
  if (under_way != references_.end()) {
    (*under_way)->waiting.push_back(job);
    return;
  }
  reference->waiting.push_back(job);
  references_.push_back(reference);
  builds_.push_back(task);
}

void Pipeline::Impl::CheckStarted() {
  MutexLock lock(mutex_);
  if (started_.has_value()) return;
  bool all_ready = true;
  for (const auto& place : runners_) {
    if (!place->start_failure.empty()) {
      started_ = absl::UnavailableError("the runner of '" + place->description.target() +
                                        "' does not start: " + place->start_failure);
    }
    all_ready = all_ready && place->state == v1::DEVICE_STATE_READY;
  }
  if (!started_.has_value() && all_ready) {
    for (const auto& place : runners_) descriptions_.push_back(place->description);
    started_ = absl::OkStatus();
  }
  if (started_.has_value()) changed_.NotifyAll();
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
  if (job->probe) return ProbeEnded(job, std::chrono::steady_clock::now());
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
  job->reference.reset();
  job->network.reset();
  answers_.push_back(job);
}

// After the statistics, so that who has all results also finds them counted.
void Pipeline::Impl::Answer() {
  for (const JobPtr& job : std::exchange(answers_, {})) {
    {
      MutexLock lock(mutex_);
      --unfinished_[job->device];
    }
    job->done(job->result);
  }
}

void Pipeline::Impl::Publish() {
  v1::WorkerStatistics statistics = counts_;
  std::vector<v1::DeviceStatus> states;
  std::vector<v1::DeviceStatistics> counts;
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
    v1::DeviceStatistics& count = counts.emplace_back(place->counts);
    count.set_device(place->description.name());
    count.set_busy_seconds(place->slot->busy_seconds());
    count.set_reference_seconds(place->reference_seconds);
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
