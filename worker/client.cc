#include "worker/client.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "diapason/v1/measure.grpc.pb.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "worker/process/convert.h"
#include "worker/process/outcome_check.h"
#include "worker/rpc/channel.h"
#include "worker/rpc/log.h"
#include "worker/rpc/message_limits.h"
#include "worker/tracker/tracker.h"
#include "worker/worker_pages.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kClientCallTimeout{15000};
constexpr std::chrono::milliseconds kNextWait{20000};
// Sending may wait for room in the queue; each call in it has a deadline of its own.
constexpr std::chrono::milliseconds kWholeSubmit = std::chrono::hours(1);
constexpr std::chrono::seconds kSlotsLive{1};
constexpr std::chrono::milliseconds kStopLook{100};
constexpr size_t kBytesPerSubmit = 8 << 20;

v1::MeasureRequest ToRequest(const Measurement& m) {
  v1::MeasureRequest request;
  request.set_id(static_cast<uint64_t>(m.id));
  if (m.workload != nullptr) request.set_workload(*m.workload);
  request.set_schedule(m.schedule);
  request.set_target(m.target);
  request.set_device_model(m.device_model);
  request.set_mode(static_cast<v1::MeasureMode>(m.mode));
  v1::TimingOptions& timing = *request.mutable_timing();
  timing.set_repeat(static_cast<uint32_t>(std::max(1, m.repeat)));
  timing.set_number(static_cast<uint64_t>(std::max<int64_t>(1, m.number)));
  timing.set_min_repeat_ms(m.min_repeat_ms);
  timing.set_race(m.race);
  if (m.best_seconds > 0) request.set_best_seconds(m.best_seconds);
  request.set_input_seed(m.input_seed);
  request.set_build_timeout_seconds(m.build_timeout_s);
  request.set_run_timeout_seconds(m.run_timeout_s);
  request.set_verify_timeout_seconds(m.verify_timeout_s);
  request.set_max_attempts(static_cast<uint32_t>(std::max(1, m.max_attempts)));
  request.set_least_operations(m.least_work.operations);
  request.set_least_bytes(m.least_work.bytes);
  if (m.network != nullptr) DIAPASON_CHECK(request.mutable_network()->ParseFromString(*m.network));
  return request;
}

MeasurementResult FromMessage(const v1::MeasureResult& message) {
  MeasurementResult result;
  result.id = static_cast<int64_t>(message.id());
  if (message.has_timing()) {
    result.outcome = FromProto(message.timing());
  } else if (message.has_error()) {
    result.outcome = FromProto(message.error());
  } else {
    result.cancelled = true;
    result.outcome = MeasureError{ErrorKind::kInfrastructure, MeasureStage::kQueue, message.cancelled().reason()};
  }
  if (message.has_verification()) {
    const v1::Verification& v = message.verification();
    result.check =
        MeasurementCheck{v.ok(), v.max_abs_error(), v.max_rel_error(), v.tolerance(), v.text(), v.run_seconds()};
  }
  result.worker = message.on().worker();
  result.device = message.on().device();
  result.device_model = message.on().model();
  result.device_uuid = message.on().uuid();
  result.driver = message.on().driver();
  result.core_mhz = message.on().clocks().core_mhz();
  result.memory_mhz = message.on().clocks().memory_mhz();
  result.compiler = message.compiler();
  result.registers.assign(message.registers().begin(), message.registers().end());
  result.spill_bytes.assign(message.spill_bytes().begin(), message.spill_bytes().end());
  result.attempts = static_cast<int>(message.attempts());
  result.queued_seconds = message.times().queued_seconds();
  return result;
}

// The tracker has looked already; what it let through all the same is no outcome for the search either.
void CheckOutcome(const v1::MeasureRequest& request, v1::MeasureResult& result) {
  TrimOutcome(result);
  const std::string fault = FaultOfOutcome(request, result, /*facts=*/nullptr);
  if (fault.empty()) return;
  const std::string worker = result.on().worker();
  result.clear_verification();
  SetError(ErrorKind::kInfrastructure, MeasureStage::kQueue, "worker '" + worker + "' gave a bad outcome: " + fault,
           *result.mutable_error());
}

}  // namespace

class MeasureClient::Impl {
 public:
  Impl(std::string address, MeasureClientOptions options)
      : address_(std::move(address)),
        options_(std::move(options)),
        peer_(address_, options_.credentials),
        measure_(peer_),
        tracker_(peer_) {}
  ~Impl() { Stop(); }

  absl::Status Connect();
  absl::Status Submit(std::vector<Measurement> measurements);
  absl::StatusOr<std::vector<MeasurementResult>> Next(double timeout_s);
  void Cancel();
  int64_t unfinished();
  absl::Status ListWorkers(v1::ListWorkersResponse& response);
  int Slots(const std::string& device_model);

 private:
  using Requests = std::vector<v1::MeasureRequest>;

  // Calls until it works, is refused, or the tracker was away for give_up_seconds. A queue that is gone is opened anew,
  // with everything unfinished in it; `call` then sees the new one's name.
  template <typename Call>
  absl::Status Insist(CallGuard& guard, std::chrono::milliseconds timeout, const Call& call) {
    return Insist(guard, timeout, call, options_.give_up_seconds);
  }
  template <typename Call>
  absl::Status Insist(CallGuard& guard, std::chrono::milliseconds timeout, const Call& call, double give_up_seconds);
  absl::Status Open();
  absl::Status Reopen(const std::string& lost_queue);
  absl::Status Send(const Requests& requests);
  void ReceiveLoop();
  absl::Status Renew(const std::string& queue, uint64_t incarnation);
  void Receive(const std::string& queue, const v1::NextResponse& response);
  void Break(const absl::Status& status);
  void Stop();
  std::string queue() {
    MutexLock lock(mutex_);
    return queue_;
  }
  bool Sleep(std::chrono::milliseconds time) {
    MutexLock lock(mutex_);
    const Clock::time_point until = Clock::now() + time;
    // Nothing wakes us when *stop is set.
    while (!stopping_ && !(connecting_ && options_.stop != nullptr && *options_.stop)) {
      if (Clock::now() >= until) return true;
      changed_.WaitUntil(lock, connecting_ ? std::min(until, Clock::now() + kStopLook) : until);
    }
    return false;
  }

  const std::string address_;
  const MeasureClientOptions options_;
  Peer peer_;
  const PeerStub<v1::Measure> measure_;
  const PeerStub<v1::Tracker> tracker_;
  CallGuard receive_call_;
  std::thread receiver_;
  Mutex opening_;  // one thread at a time opens a queue anew; taken before mutex_

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool connecting_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // why no further result will come
  std::string queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, v1::MeasureRequest> pending_ ABSL_GUARDED_BY(mutex_);  // without a result
  std::vector<MeasurementResult> results_ ABSL_GUARDED_BY(mutex_);         // not handed out
  // By model of device: when asked, and the answer.
  std::map<std::string, std::pair<Clock::time_point, int>> slots_ ABSL_GUARDED_BY(mutex_);
};

template <typename Call>
absl::Status MeasureClient::Impl::Insist(CallGuard& guard, std::chrono::milliseconds timeout, const Call& call,
                                         double give_up_seconds) {
  PeerRetry retry(peer_, give_up_seconds);
  while (true) {
    std::string used = queue();
    retry.Begin();
    absl::Status status = guard.Run(timeout, [&](grpc::ClientContext& context) { return call(context, used); });
    // A tracker that goes down cancels the calls that it has; we cancel ours only when we stop, which Sleep sees.
    auto passes = [](const absl::Status& s) { return IsTransient(s) || absl::IsCancelled(s); };
    if (absl::IsNotFound(status) && !used.empty())
      status = Reopen(used);
    else if (absl::IsUnimplemented(status))
      return NoTracker(address_);
    else if (!passes(status))
      return status;
    if (status.ok()) continue;
    if (!passes(status)) return status;
    retry.NextAddress();
    const std::optional<std::chrono::milliseconds> wait = retry.Pause();
    if (!wait.has_value()) return NoAnswer("tracker", address_, status, options_.credentials);
    if (!Sleep(*wait)) return absl::CancelledError("stopping");
  }
}

absl::Status MeasureClient::Impl::Open() {
  v1::OpenRequest request;
  request.mutable_protocol()->set_low(kLowestProtocol);
  request.mutable_protocol()->set_high(kHighestProtocol);
  request.set_name(options_.name);
  request.set_job(options_.job);
  request.set_program("diapason");
  request.set_priority(options_.priority);
  request.set_weight(options_.weight);
  for (const auto& [key, value] : options_.labels) (*request.mutable_labels())[key] = value;
  v1::OpenResponse response;
  CallGuard guard;
  RETURN_IF_ERROR(
      guard.Run(kClientCallTimeout, [&](grpc::ClientContext& c) { return measure_->Open(&c, request, &response); }));
  MutexLock lock(mutex_);
  queue_ = response.queue();
  acknowledged_ = 0;
  incarnation_ = response.incarnation();
  return absl::OkStatus();
}

absl::Status MeasureClient::Impl::Connect() {
  CallGuard guard;
  RETURN_IF_ERROR(Insist(
      guard, kClientCallTimeout, [&](grpc::ClientContext&, const std::string&) { return ToGrpc(Open()); },
      options_.connect_seconds >= 0 ? options_.connect_seconds : options_.give_up_seconds));
  {
    MutexLock lock(mutex_);
    connecting_ = false;
  }
  receiver_ = std::thread([this] { ReceiveLoop(); });
  return absl::OkStatus();
}

// The tracker was restarted, or thought us dead.
absl::Status MeasureClient::Impl::Reopen(const std::string& lost_queue) {
  MutexLock opening(opening_);
  if (queue() != lost_queue) return absl::OkStatus();  // another thread was here
  RETURN_IF_ERROR(Open());
  Requests unfinished;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, request] : pending_) unfinished.push_back(request);
  }
  return Send(unfinished);
}

// In pieces, each all or nothing; sent again they do no harm.
absl::Status MeasureClient::Impl::Send(const Requests& requests) {
  CallGuard guard;
  for (size_t i = 0; i < requests.size();) {
    v1::SubmitRequest message;
    message.set_queue(queue());
    for (size_t bytes = 0; i < requests.size() && bytes < kBytesPerSubmit && message.requests_size() < 256; ++i) {
      *message.add_requests() = requests[i];
      bytes += requests[i].ByteSizeLong();
    }
    v1::SubmitResponse response;
    while (true) {
      absl::Status status = guard.Run(kClientCallTimeout,
                                      [&](grpc::ClientContext& c) { return measure_->Submit(&c, message, &response); });
      if (status.ok()) break;
      // Full: results are being fetched by the receiver.
      if (!absl::IsResourceExhausted(status)) return status;
      if (!Sleep(std::chrono::milliseconds(20))) return absl::CancelledError("stopping");
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureClient::Impl::Submit(std::vector<Measurement> measurements) {
  Requests requests;
  for (const Measurement& m : measurements) {
    if (m.id <= 0) return absl::InvalidArgumentError("the id of a measurement is above 0");
    requests.push_back(ToRequest(m));
  }
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return broken_;
    for (const v1::MeasureRequest& request : requests) pending_[static_cast<int64_t>(request.id())] = request;
  }
  CallGuard guard;
  absl::Status status =
      Insist(guard, kWholeSubmit, [&](grpc::ClientContext&, const std::string&) { return ToGrpc(Send(requests)); });
  if (status.ok()) return status;
  MutexLock lock(mutex_);
  for (const v1::MeasureRequest& request : requests) pending_.erase(static_cast<int64_t>(request.id()));
  return status;
}

void MeasureClient::Impl::ReceiveLoop() {
  while (true) {
    v1::NextResponse response;
    std::string asked;
    absl::Status status = Insist(receive_call_, kNextWait + kClientCallTimeout,
                                 [&](grpc::ClientContext& context, const std::string& queue) {
                                   v1::NextRequest request;
                                   asked = queue;
                                   request.set_queue(queue);
                                   {
                                     MutexLock lock(mutex_);
                                     request.set_acknowledged(acknowledged_);
                                     request.set_incarnation(incarnation_);
                                   }
                                   request.set_max_wait_ms(static_cast<uint32_t>(kNextWait.count()));
                                   return measure_->Next(&context, request, &response);
                                 });
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    if (status.ok()) status = Renew(asked, response.incarnation());
    if (!status.ok()) return Break(status);
    Receive(asked, response);
  }
}

// The tracker was restarted and knows the queue: what it has forgotten of the last moments is sent again.
absl::Status MeasureClient::Impl::Renew(const std::string& queue, uint64_t incarnation) {
  Requests unfinished;
  {
    MutexLock lock(mutex_);
    if (queue != queue_ || incarnation == incarnation_) return absl::OkStatus();
    incarnation_ = incarnation;
    acknowledged_ = 0;
    for (const auto& [id, request] : pending_) unfinished.push_back(request);
  }
  CallGuard guard;
  return Insist(guard, kWholeSubmit,
                [&](grpc::ClientContext&, const std::string&) { return ToGrpc(Send(unfinished)); });
}

void MeasureClient::Impl::Receive(const std::string& queue, const v1::NextResponse& response) {
  MutexLock lock(mutex_);
  for (v1::MeasureResult message : response.results()) {
    if (queue == queue_) acknowledged_ = std::max(acknowledged_, message.sequence());
    // A second one can come after a queue was opened anew.
    const auto asked = pending_.find(static_cast<int64_t>(message.id()));
    if (asked == pending_.end()) continue;
    CheckOutcome(asked->second, message);
    pending_.erase(asked);
    results_.push_back(FromMessage(message));
    if (!Logs(LogLevel::kDebug)) continue;
    LogEvent(LogLevel::kDebug, "trial_answered",
             {{"job", options_.job.empty() ? options_.name : options_.job},
              {"trial", std::to_string(message.id())},
              {"outcome", OutcomeName(message)},
              {"worker", message.on().worker()},
              {"device", message.on().device()}});
  }
  changed_.NotifyAll();
}

void MeasureClient::Impl::Break(const absl::Status& status) {
  MutexLock lock(mutex_);
  broken_ = status;
  for (const auto& [id, request] : pending_) {
    MeasurementResult result;
    result.id = id;
    result.outcome = MeasureError{ErrorKind::kInfrastructure, MeasureStage::kQueue, std::string(status.message())};
    results_.push_back(std::move(result));
  }
  pending_.clear();
  changed_.NotifyAll();
}

absl::StatusOr<std::vector<MeasurementResult>> MeasureClient::Impl::Next(double timeout_s) {
  MutexLock lock(mutex_);
  changed_.WaitFor(lock, std::chrono::duration<double>(timeout_s), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !results_.empty() || !broken_.ok() || stopping_;
  });
  if (results_.empty() && !broken_.ok()) return broken_;
  return std::exchange(results_, {});
}

void MeasureClient::Impl::Cancel() {
  v1::CancelRequest request;
  request.set_queue(queue());
  request.set_all(true);
  v1::CancelResponse response;
  CallGuard guard;
  absl::Status status =
      guard.Run(kClientCallTimeout, [&](grpc::ClientContext& c) { return measure_->Cancel(&c, request, &response); });
  if (status.ok()) return;
  // A tracker that does not hear it: nothing will be waited for all the same.
  v1::MeasureResult message;
  message.mutable_cancelled()->set_reason("the coordinator cancelled it");
  MutexLock lock(mutex_);
  for (const auto& [id, pending] : pending_) {
    message.set_id(static_cast<uint64_t>(id));
    results_.push_back(FromMessage(message));
  }
  pending_.clear();
  changed_.NotifyAll();
}

int64_t MeasureClient::Impl::unfinished() {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(pending_.size() + results_.size());
}

absl::Status MeasureClient::Impl::ListWorkers(v1::ListWorkersResponse& response) {
  CallGuard guard;
  return ListAllWorkers(
      [&](const v1::ListWorkersRequest& request, v1::ListWorkersResponse& page) {
        return guard.Run(kClientCallTimeout,
                         [&](grpc::ClientContext& c) { return tracker_->ListWorkers(&c, request, &page); });
      },
      response);
}

int MeasureClient::Impl::Slots(const std::string& device_model) {
  {
    MutexLock lock(mutex_);
    auto known = slots_.find(device_model);
    if (known != slots_.end() && Clock::now() - known->second.first < kSlotsLive) return known->second.second;
  }
  v1::ListWorkersResponse response;
  bool answered = ListWorkers(response).ok();
  int slots = 0;
  for (const v1::WorkerStatus& worker : response.workers()) {
    auto fit =
        std::count_if(worker.devices().begin(), worker.devices().end(), [&](const v1::DeviceDescription& device) {
          return device_model.empty() || device.facts().model() == device_model;
        });
    if (fit > 0) slots += static_cast<int>(worker.statistics().builders() + fit);
  }
  MutexLock lock(mutex_);
  auto& known = slots_[device_model];
  known = {Clock::now(), answered ? std::max(1, slots) : std::max(1, known.second)};
  return known.second;
}

void MeasureClient::Impl::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  receive_call_.CancelAll();
  if (receiver_.joinable()) receiver_.join();
  v1::CloseRequest request;
  request.set_queue(queue());
  if (request.queue().empty()) return;
  v1::CloseResponse response;
  CallGuard guard;
  // A tracker that does not hear it lets the queue expire.
  guard
      .Run(std::chrono::milliseconds(2000),
           [&](grpc::ClientContext& c) { return measure_->Close(&c, request, &response); })
      .IgnoreError();
}

// ---- the public face

MeasureClient::MeasureClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MeasureClient::~MeasureClient() = default;

absl::StatusOr<std::unique_ptr<MeasureClient>> MeasureClient::Connect(const std::string& address,
                                                                      MeasureClientOptions options) {
  auto impl = std::make_unique<Impl>(address, std::move(options));
  RETURN_IF_ERROR(impl->Connect());
  return std::unique_ptr<MeasureClient>(new MeasureClient(std::move(impl)));
}

absl::Status MeasureClient::Submit(std::vector<Measurement> measurements) {
  return impl_->Submit(std::move(measurements));
}
absl::StatusOr<std::vector<MeasurementResult>> MeasureClient::Next(double timeout_s) { return impl_->Next(timeout_s); }
void MeasureClient::Cancel() { impl_->Cancel(); }
int64_t MeasureClient::unfinished() const { return impl_->unfinished(); }
void MeasureClient::Own(std::shared_ptr<void> owned) { owned_.push_back(std::move(owned)); }

absl::StatusOr<MeasureStatistics> MeasureClient::Statistics() {
  v1::ListWorkersResponse response;
  RETURN_IF_ERROR(impl_->ListWorkers(response));
  MeasureStatistics total;
  for (const v1::WorkerStatus& worker : response.workers()) {
    const v1::WorkerStatistics& s = worker.statistics();
    total.builds += static_cast<int64_t>(s.builds());
    total.failed_builds += static_cast<int64_t>(s.failed_builds());
    total.runs += static_cast<int64_t>(s.runs());
    total.failed_runs += static_cast<int64_t>(s.failed_runs());
    total.builder_restarts += static_cast<int64_t>(s.builder_restarts());
    total.runner_restarts += static_cast<int64_t>(s.runner_restarts());
    total.builder_busy_seconds += s.builder_busy_seconds();
    total.runner_busy_seconds += s.runner_busy_seconds();
    const v1::RunStages& stages = s.run_stages();
    total.run_seconds.load += stages.load_seconds();
    total.run_seconds.fill += stages.fill_seconds();
    total.run_seconds.first_run += stages.first_run_seconds();
    total.run_seconds.timing += stages.timing_seconds();
    total.run_seconds.stopped_early += stages.stopped_early_seconds();
    total.run_seconds.check += stages.check_seconds();
    total.run_seconds.verify += stages.verify_seconds();
    total.stopped_early += static_cast<int64_t>(stages.stopped_early());
    total.seconds = std::max(total.seconds, s.seconds());
    total.workers += 1;
    total.builders += static_cast<int>(s.builders());
    total.devices += static_cast<int>(s.devices());
    total.waiting_for_builder += static_cast<int>(s.waiting_for_builder());
    total.waiting_for_runner += static_cast<int>(s.waiting_for_runner());
  }
  return total;
}

absl::StatusOr<std::vector<MeasureDevice>> MeasureClient::Devices() {
  v1::ListWorkersResponse response;
  RETURN_IF_ERROR(impl_->ListWorkers(response));
  std::vector<MeasureDevice> devices;
  for (const v1::WorkerStatus& worker : response.workers()) {
    for (const v1::DeviceDescription& device : worker.devices()) {
      absl::StatusOr<DeviceFacts> facts = CheckedFacts(device);
      if (!facts.ok()) continue;  // not started yet, or no device at all: nothing can be measured on it
      devices.push_back({worker.name(),
                         device.name(),
                         device.target(),
                         *std::move(facts),
                         {worker.labels().begin(), worker.labels().end()}});
    }
  }
  return devices;
}

int MeasureClient::slots(const std::string& device_model) { return impl_->Slots(device_model); }

}  // namespace diapason
