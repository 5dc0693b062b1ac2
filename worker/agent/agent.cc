#include "worker/agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/host_name.h"
#include "base/mutex.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "worker/agent/leases.h"
#include "worker/pipeline/metrics.h"
#include "worker/process/convert.h"
#include "worker/rpc/channel.h"
#include "worker/rpc/log.h"
#include "worker/rpc/message_limits.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAgentCallTimeout{10000};
constexpr std::chrono::milliseconds kLeaseWait{20000};

void NoteSandbox(const Sandbox& sandbox) {
  std::vector<std::pair<std::string, std::string>> fields = {{"in_force", sandbox.Describe()}};
  if (!sandbox.why_not().empty()) fields.emplace_back("why", sandbox.why_not());
  LogEvent(sandbox.why_not().empty() ? LogLevel::kInfo : LogLevel::kWarning, "sandbox", fields);
}

void LogTrial(LogLevel level, const std::string& event, uint64_t lease, const HeldLease& held,
              std::vector<std::pair<std::string, std::string>> more) {
  if (!Logs(level)) return;
  std::vector<std::pair<std::string, std::string>> fields = {
      {"job", held.job}, {"trial", std::to_string(held.trial)}, {"lease", std::to_string(lease)}};
  fields.insert(fields.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  LogEvent(level, event, fields);
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) ||
         absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

}  // namespace

class WorkerAgent::Impl {
 public:
  explicit Impl(AgentOptions options) : options_(std::move(options)) {
    if (options_.worker_id.empty()) options_.worker_id = HostName() + "-" + std::to_string(getpid());
    if (options_.name.empty()) options_.name = options_.worker_id;
  }
  ~Impl() { Stop(); }

  absl::Status Start();
  absl::Status WaitUntilRegistered(double timeout_seconds);
  absl::Status Drain(double timeout_seconds);
  void Stop();
  Pipeline& pipeline() { return *pipeline_; }
  std::vector<Metric> Metrics();
  absl::Status Refusal() {
    MutexLock lock(mutex_);
    // A device that another worker has may be free soon.
    return IsRefusal(last_status_) && !absl::IsAlreadyExists(last_status_) ? last_status_ : absl::OkStatus();
  }

 private:
  void LeaseLoop();
  void ReportLoop();
  absl::Status Register();
  void NoteRegistered(const absl::Status& status);
  // False when nothing is free.
  bool FillCapacity(v1::LeaseRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(const v1::LeaseResponse& response);
  void Begin(const v1::LeaseGrant& grant);
  void OnResult(uint64_t lease, const v1::MeasureResult& result);
  void Drop(const std::vector<uint64_t>& leases, const std::string& why);
  void EndSession(const std::string& session);
  v1::ReportRequest MakeReport();
  void OnReported(const v1::ReportRequest& request, const v1::ReportResponse& response);
  // False when the agent stops meanwhile.
  bool Sleep(std::chrono::milliseconds time);

  AgentOptions options_;
  std::string unexplained_;  // what Register last failed with, and what that means; of the leasing thread
  absl::Status explained_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<PeerStub<v1::Tracker>> stub_;
  CallGuard lease_call_, report_call_;
  int leases_per_device_ = 1;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string session_ ABSL_GUARDED_BY(mutex_);  // empty: none
  absl::Status last_status_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("the tracker was not asked yet");
  uint64_t batch_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last answer to Lease
  std::chrono::milliseconds heartbeat_ ABSL_GUARDED_BY(mutex_){1000};
  AgentLeases leases_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::DeviceState> reported_states_ ABSL_GUARDED_BY(mutex_);
  std::thread lease_thread_, report_thread_;
};

absl::Status WorkerAgent::Impl::Start() {
  ASSIGN_OR_RETURN(pipeline_, Pipeline::Start(options_.pipeline));
  NoteSandbox(pipeline_->sandbox());
  int devices = static_cast<int>(pipeline_->devices().size());
  int leases = options_.max_leases > 0 ? options_.max_leases : 2 * (pipeline_->builders() + devices);
  leases_per_device_ = std::max(1, (leases + devices - 1) / devices);
  peer_ = std::make_unique<Peer>(options_.tracker, options_.credentials);
  stub_ = std::make_unique<PeerStub<v1::Tracker>>(*peer_);
  lease_thread_ = std::thread([this] { LeaseLoop(); });
  report_thread_ = std::thread([this] { ReportLoop(); });
  return absl::OkStatus();
}

bool WorkerAgent::Impl::Sleep(std::chrono::milliseconds time) {
  MutexLock lock(mutex_);
  return !changed_.WaitFor(lock, time, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
}

// ---- leasing

absl::Status WorkerAgent::Impl::Register() {
  v1::RegisterRequest request;
  request.mutable_protocol()->set_low(kLowestProtocol);
  request.mutable_protocol()->set_high(kHighestProtocol);
  request.set_worker_id(options_.worker_id);
  request.set_name(options_.name);
  request.set_host(HostName());
  request.set_program("diapason");
  request.set_builders(static_cast<uint32_t>(pipeline_->builders()));
  request.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
  for (const v1::DeviceDescription& device : pipeline_->devices()) *request.add_devices() = device;
  v1::RegisterResponse response;
  absl::Status status = lease_call_.Run(kAgentCallTimeout, [&](grpc::ClientContext& context) {
    return (*stub_)->Register(&context, request, &response);
  });
  if (status.ok()) status = CheckMessage(response);
  // Looked into once for each new reason.
  if (IsTransient(status) && status.message() != unexplained_) {
    unexplained_ = std::string(status.message());
    explained_ = NoAnswer("tracker", options_.tracker, status, options_.credentials);
  }
  if (IsTransient(status)) status = explained_;
  if (absl::IsUnimplemented(status)) status = NoTracker(options_.tracker);
  NoteRegistered(status);
  MutexLock lock(mutex_);
  last_status_ = status;
  if (status.ok()) {
    session_ = response.session();
    heartbeat_ = std::chrono::milliseconds(std::max<uint32_t>(response.heartbeat_ms(), 10));
    batch_ = 0;
    reported_states_.clear();
  }
  changed_.NotifyAll();
  return status;
}

// Logged when that changes: a tracker that is away is asked many times.
void WorkerAgent::Impl::NoteRegistered(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || (!status.ok() && status == last_status_)) return;
  }
  if (status.ok()) {
    return LogEvent(LogLevel::kInfo, "worker_registered", {{"tracker", options_.tracker}, {"worker", options_.name}});
  }
  LogEvent(LogLevel::kWarning, "worker_not_registered",
           {{"tracker", options_.tracker}, {"worker", options_.name}, {"why", std::string(status.message())}});
}

bool WorkerAgent::Impl::FillCapacity(v1::LeaseRequest& request) {
  request.set_session(session_);
  request.set_received(batch_);
  request.set_max_wait_ms(static_cast<uint32_t>(kLeaseWait.count()));
  request.clear_capacity();
  bool any = false;
  for (size_t d = 0; d < pipeline_->devices().size(); ++d) {
    int free = std::max(0, leases_per_device_ - leases_.HeldOn(static_cast<int>(d)));
    v1::DeviceCapacity& capacity = *request.add_capacity();
    capacity.set_device(pipeline_->devices()[d].name());
    capacity.set_free(static_cast<uint32_t>(free));
    any = any || free > 0;
  }
  return any;
}

void WorkerAgent::Impl::LeaseLoop() {
  PeerRetry retry(*peer_);
  while (true) {
    v1::LeaseRequest request;
    bool registered = false;
    {
      MutexLock lock(mutex_);
      changed_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || session_.empty() || (FillCapacity(request) && !draining_);
      });
      if (stopping_) return;
      registered = !session_.empty();
    }
    v1::LeaseResponse response;
    retry.Begin();
    absl::Status status =
        !registered ? Register() : lease_call_.Run(kLeaseWait + kAgentCallTimeout, [&](grpc::ClientContext& context) {
          return (*stub_)->Lease(&context, request, &response);
        });
    if (status.ok()) {
      retry.Reset();
      if (registered) Take(response);
      continue;
    }
    if (absl::IsNotFound(status)) {
      EndSession(request.session());
      continue;
    }
    // A tracker that goes down cancels the calls that it has.
    if (IsTransient(status) || absl::IsCancelled(status)) retry.NextAddress();
    if (!Sleep(*retry.Pause())) return;
  }
}

// What does not fit the limits is not begun: its leases end when they are not renewed.
void WorkerAgent::Impl::Take(const v1::LeaseResponse& response) {
  if (const absl::Status fits = CheckMessage(response); !fits.ok()) {
    return LogEvent(LogLevel::kError, "leases_refused",
                    {{"tracker", options_.tracker}, {"why", std::string(fits.message())}});
  }
  {
    MutexLock lock(mutex_);
    batch_ = response.batch();
  }
  Drop({response.revoked().begin(), response.revoked().end()}, "its lease was revoked");
  for (const v1::LeaseGrant& grant : response.grants()) Begin(grant);
}

void WorkerAgent::Impl::Begin(const v1::LeaseGrant& grant) {
  const std::vector<v1::DeviceDescription>& devices = pipeline_->devices();
  auto device = std::find_if(devices.begin(), devices.end(), [&](const auto& d) { return d.name() == grant.device(); });
  if (device == devices.end()) return;  // of a session before: the lease will expire
  uint64_t lease = grant.lease();
  int index = static_cast<int>(device - devices.begin());
  const HeldLease held{0, index, absl::GetCurrentTimeNanos(), grant.job(), grant.request().id()};
  {
    MutexLock lock(mutex_);
    if (!leases_.Add(lease, held)) return;  // received twice
  }
  LogTrial(LogLevel::kDebug, "trial_begins", lease, held, {{"device", grant.device()}});
  uint64_t handle = pipeline_->Submit(index, grant.request(),
                                      [this, lease](const v1::MeasureResult& result) { OnResult(lease, result); });
  {
    MutexLock lock(mutex_);
    if (leases_.SetHandle(lease, handle)) return;
  }
  // Dropped before there was a handle to drop it by, or answered, when this does nothing.
  pipeline_->Cancel(handle, "its lease is over");
}

void WorkerAgent::Impl::OnResult(uint64_t lease, const v1::MeasureResult& result) {
  MutexLock lock(mutex_);
  const std::optional<HeldLease> held = leases_.Finish(lease, options_.name, result);
  if (!held) return;  // the lease is over
  if (IsInfrastructure(result)) {
    LogTrial(LogLevel::kWarning, "trial_ends", lease, *held,
             {{"outcome", OutcomeName(result)}, {"why", result.error().text()}});
  } else {
    LogTrial(LogLevel::kDebug, "trial_ends", lease, *held, {{"outcome", OutcomeName(result)}});
  }
  changed_.NotifyAll();
}

void WorkerAgent::Impl::Drop(const std::vector<uint64_t>& leases, const std::string& why) {
  std::vector<uint64_t> handles;
  {
    MutexLock lock(mutex_);
    for (uint64_t lease : leases) {
      if (const std::optional<HeldLease> held = leases_.Remove(lease)) {
        handles.push_back(held->handle);
        LogTrial(LogLevel::kDebug, "trial_dropped", lease, *held, {{"why", why}});
      }
    }
    changed_.NotifyAll();
  }
  for (uint64_t handle : handles) pipeline_->Cancel(handle, why);
}

// The tracker does not know the session any more: its leases are over. Nothing when a newer session has begun.
void WorkerAgent::Impl::EndSession(const std::string& session) {
  std::vector<uint64_t> leases;
  {
    MutexLock lock(mutex_);
    if (session_ != session || session.empty()) return;
    session_.clear();
    leases_.ForgetOutcomes();
    leases = leases_.all();
  }
  LogEvent(LogLevel::kWarning, "session_over",
           {{"tracker", options_.tracker}, {"worker", options_.name}, {"leases", std::to_string(leases.size())}});
  Drop(leases, "the session is over");
}

std::vector<Metric> WorkerAgent::Impl::Metrics() {
  std::vector<Metric> metrics = PipelineMetrics(*pipeline_);
  MutexLock lock(mutex_);
  metrics.push_back(Metric::Gauge("diapason_worker_leases", "Leases held", static_cast<double>(leases_.held())));
  metrics.push_back(
      Metric::Gauge("diapason_worker_registered", "1 while a tracker knows this worker", session_.empty() ? 0 : 1));
  return metrics;
}

// ---- reporting

v1::ReportRequest WorkerAgent::Impl::MakeReport() {
  v1::ReportRequest request;
  *request.mutable_statistics() = pipeline_->Statistics();
  for (const v1::DeviceStatistics& device : pipeline_->DeviceCounts()) *request.add_device_statistics() = device;
  std::vector<v1::DeviceStatus> states = pipeline_->DeviceStates();
  MutexLock lock(mutex_);
  request.set_session(session_);
  for (const v1::DeviceStatus& state : states) {
    auto reported = reported_states_.find(state.device());
    if (reported == reported_states_.end() || reported->second != state.state()) *request.add_devices() = state;
  }
  leases_.AddTo(request);
  return request;
}

void WorkerAgent::Impl::OnReported(const v1::ReportRequest& request, const v1::ReportResponse& response) {
  {
    MutexLock lock(mutex_);
    if (request.session() != session_) return;
    for (const v1::DeviceStatus& state : request.devices()) {
      reported_states_[state.device()] = state.state();
      LogEvent(state.state() == v1::DEVICE_STATE_QUARANTINED ? LogLevel::kError : LogLevel::kInfo, "device_state",
               {{"device", state.device()}, {"state", v1::DeviceState_Name(state.state())}, {"why", state.text()}});
    }
    // New ones were added behind; the first ones are those that were reported.
    leases_.NoteReported(request.outcomes_size());
    changed_.NotifyAll();
  }
  Drop({response.over().begin(), response.over().end()}, "its lease is over");
}

void WorkerAgent::Impl::ReportLoop() {
  Backoff backoff;
  Clock::time_point next_beat = Clock::now();
  while (true) {
    {
      MutexLock lock(mutex_);
      changed_.WaitUntil(lock, next_beat, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || (!session_.empty() && leases_.has_outcomes());
      });
      if (stopping_) return;
      if (session_.empty()) {
        changed_.WaitFor(lock, heartbeat_,
                         [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !session_.empty(); });
        continue;
      }
      next_beat = Clock::now() + heartbeat_;
    }
    v1::ReportRequest request = MakeReport();
    v1::ReportResponse response;
    const size_t at = peer_->current();
    absl::Status status = report_call_.Run(kAgentCallTimeout, [&](grpc::ClientContext& context) {
      return (*stub_)->Report(&context, request, &response);
    });
    if (status.ok()) status = CheckMessage(response);
    if (status.ok()) {
      backoff.Reset();
      OnReported(request, response);
    } else if (absl::IsNotFound(status)) {
      EndSession(request.session());
    } else {
      if (IsTransient(status) || absl::IsCancelled(status)) peer_->Failed(at);
      if (!Sleep(backoff.Next())) return;
    }
  }
}

// ---- from outside

absl::Status WorkerAgent::Impl::WaitUntilRegistered(double timeout_seconds) {
  MutexLock lock(mutex_);
  changed_.WaitFor(lock, std::chrono::duration<double>(timeout_seconds), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !session_.empty() || IsRefusal(last_status_) || stopping_;
  });
  if (!session_.empty()) return absl::OkStatus();
  if (IsRefusal(last_status_)) return last_status_;
  return absl::DeadlineExceededError("the tracker at '" + options_.tracker +
                                     "' has not accepted the worker: " + std::string(last_status_.message()));
}

absl::Status WorkerAgent::Impl::Drain(double timeout_seconds) {
  MutexLock lock(mutex_);
  draining_ = true;
  bool done = changed_.WaitFor(lock, std::chrono::duration<double>(timeout_seconds),
                               [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return leases_.idle(); });
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(std::to_string(leases_.held()) + " measurements were not finished in time");
}

void WorkerAgent::Impl::Stop() {
  std::string session;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    stopping_ = true;
    session = session_;
    leases_.RemoveAll();  // what ends from now on is not reported
  }
  changed_.NotifyAll();
  lease_call_.CancelAll();
  report_call_.CancelAll();
  if (lease_thread_.joinable()) lease_thread_.join();
  if (report_thread_.joinable()) report_thread_.join();
  if (!session.empty()) {
    CallGuard call;
    v1::LeaveRequest request;
    request.set_session(session);
    v1::LeaveResponse response;
    // A tracker that does not hear it learns by the silence.
    call.Run(std::chrono::milliseconds(2000),
             [&](grpc::ClientContext& context) { return (*stub_)->Leave(&context, request, &response); })
        .IgnoreError();
  }
  if (pipeline_ != nullptr) pipeline_->Stop();
}

WorkerAgent::WorkerAgent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerAgent::~WorkerAgent() = default;

absl::StatusOr<std::unique_ptr<WorkerAgent>> WorkerAgent::Start(AgentOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<WorkerAgent>(new WorkerAgent(std::move(impl)));
}

absl::Status WorkerAgent::WaitUntilRegistered(double timeout_seconds) {
  return impl_->WaitUntilRegistered(timeout_seconds);
}
absl::Status WorkerAgent::Drain(double timeout_seconds) { return impl_->Drain(timeout_seconds); }
void WorkerAgent::Stop() { impl_->Stop(); }
std::vector<Metric> WorkerAgent::Metrics() { return impl_->Metrics(); }
Pipeline& WorkerAgent::pipeline() { return impl_->pipeline(); }
absl::Status WorkerAgent::Refusal() { return impl_->Refusal(); }
std::vector<std::string> WorkerAgent::pipeline_devices() {
  std::vector<std::string> devices;
  for (const v1::DeviceDescription& device : pipeline().devices())
    devices.push_back(device.name() + " (" + device.facts().model() + ")");
  return devices;
}

}  // namespace diapason
