#include "worker/tracker/server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "worker/rpc/call_gate.h"
#include "worker/rpc/rpc_service.h"
#include "worker/rpc/service_host.h"
#include "worker/tracker/store.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

constexpr std::chrono::milliseconds kTick{50};

// Messages: a coordinator sends pieces of 8 MiB and one more request of at most 16 MiB (client.cc), a worker the
// outcomes of 128 leases (agent.cc).
constexpr MethodRules kOpen{Role::kSubmitter, 64 << 10, 1024};
constexpr MethodRules kSubmit{Role::kSubmitter, 32 << 20, 16384};
constexpr MethodRules kFromCoordinator{Role::kSubmitter, 1 << 20, 64};
constexpr MethodRules kRegister{Role::kWorker, 256 << 10, 8192};
constexpr MethodRules kReport{Role::kWorker, 8 << 20, 32768};
constexpr MethodRules kFromWorker{Role::kWorker, 256 << 10, 8192};
constexpr MethodRules kLook{Role::kReader, 4 << 10, 64};

// A call that is answered at once, with what was done in the store.
template <typename Response, typename Request>
auto Stored(Tracker& tracker, absl::Status (Tracker::*method)(const Request&, Response&)) {
  return [&tracker, method](const CallInfo&, const Request& request, RpcService::Reply<Response> reply) {
    Response response;
    const absl::Status status = (tracker.*method)(request, response);
    tracker.WhenStored([reply = std::move(reply), status, response = std::move(response)] { reply(status, response); });
  };
}

class MeasureService final : public RpcService {
 public:
  MeasureService(Tracker& tracker, std::shared_ptr<CallGate> gate)
      : RpcService("diapason.v1.Measure", std::move(gate)) {
    Unary<v1::OpenRequest, v1::OpenResponse>(
        "Open", kOpen, [&tracker](const CallInfo& call, const v1::OpenRequest& request, Reply<v1::OpenResponse> reply) {
          v1::OpenResponse response;
          const absl::Status status = tracker.Open(request, response, call.caller.owner);
          tracker.WhenStored(
              [reply = std::move(reply), status, response = std::move(response)] { reply(status, response); });
        });
    Unary<v1::SubmitRequest, v1::SubmitResponse>("Submit", kSubmit, Stored(tracker, &Tracker::Submit));
    // A call that may wait holds no thread: the tracker finishes it.
    Unary<v1::NextRequest, v1::NextResponse>(
        "Next", kFromCoordinator,
        [&tracker](const CallInfo&, const v1::NextRequest& request, Reply<v1::NextResponse> reply) {
          tracker.Next(request, std::move(reply));
        });
    Unary<v1::CancelRequest, v1::CancelResponse>("Cancel", kFromCoordinator, Stored(tracker, &Tracker::Cancel));
    Unary<v1::CloseRequest, v1::CloseResponse>("Close", kFromCoordinator, Stored(tracker, &Tracker::Close));
  }
};

class TrackerService final : public RpcService {
 public:
  TrackerService(Tracker& tracker, std::shared_ptr<CallGate> gate)
      : RpcService("diapason.v1.Tracker", std::move(gate)) {
    Unary<v1::RegisterRequest, v1::RegisterResponse>("Register", kRegister, Stored(tracker, &Tracker::Register));
    Unary<v1::LeaseRequest, v1::LeaseResponse>(
        "Lease", kFromWorker,
        [&tracker](const CallInfo&, const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) {
          tracker.Lease(request, std::move(reply));
        });
    Unary<v1::ReportRequest, v1::ReportResponse>("Report", kReport, Stored(tracker, &Tracker::Report));
    Unary<v1::LeaveRequest, v1::LeaveResponse>("Leave", kFromWorker, Stored(tracker, &Tracker::Leave));
    Unary<v1::ListWorkersRequest, v1::ListWorkersResponse>(
        "ListWorkers", kLook,
        [&tracker](const CallInfo&, const v1::ListWorkersRequest& request, Reply<v1::ListWorkersResponse> reply) {
          v1::ListWorkersResponse response;
          const absl::Status status = tracker.ListWorkers(request, response);
          reply(status, std::move(response));
        });
  }
};

}  // namespace

class TrackerServer::Impl {
 public:
  Impl(ServiceHostOptions host, TrackerOptions options, std::unique_ptr<TrackerStore> store)
      : host_options_(std::move(host)),
        tracker_(std::move(options), std::move(store)),
        measure_(tracker_, host_options_.gate),
        workers_(tracker_, host_options_.gate) {}
  ~Impl() { Shutdown(); }

  absl::Status Start(std::vector<grpc::Service*> services) {
    RETURN_IF_ERROR(tracker_.Restore());
    services.push_back(&measure_);
    services.push_back(&workers_);
    ASSIGN_OR_RETURN(host_, ServiceHost::Start(host_options_, services));
    ticker_ = std::thread([this] { Tick(); });
    return absl::OkStatus();
  }

  const std::string& address() const { return host_->address(); }
  const std::string& in_process() const { return host_->in_process(); }
  std::vector<Metric> Metrics() {
    std::vector<Metric> metrics = tracker_.Metrics(), of_host = host_->Metrics();
    metrics.insert(metrics.end(), of_host.begin(), of_host.end());
    return metrics;
  }

  void Shutdown() {
    {
      MutexLock lock(mutex_);
      if (std::exchange(stopping_, true)) return;
    }
    changed_.NotifyAll();
    if (ticker_.joinable()) ticker_.join();
    tracker_.Shutdown();
    if (host_ != nullptr) host_->Shutdown();
  }

 private:
  void Tick() {
    MutexLock lock(mutex_);
    while (!changed_.WaitFor(lock, kTick, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; })) {
      lock.Unlock();
      tracker_.Tick();
      lock.Lock();
    }
  }

  const ServiceHostOptions host_options_;
  Tracker tracker_;
  MeasureService measure_;
  TrackerService workers_;
  std::unique_ptr<ServiceHost> host_;
  std::thread ticker_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

TrackerServer::TrackerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrackerServer::~TrackerServer() = default;

absl::StatusOr<std::unique_ptr<TrackerServer>> TrackerServer::Start(const ServiceHostOptions& host,
                                                                    TrackerOptions options, const std::string& state,
                                                                    std::vector<grpc::Service*> services) {
  std::unique_ptr<TrackerStore> store;
  if (!state.empty()) {
    ASSIGN_OR_RETURN(store, TrackerStore::Open(state));
  }
  ServiceHostOptions gated = host;
  if (gated.gate == nullptr) gated.gate = MakeGate(host.credentials);
  auto impl = std::make_unique<Impl>(std::move(gated), std::move(options), std::move(store));
  if (absl::Status status = impl->Start(std::move(services)); !status.ok()) return status;
  return std::unique_ptr<TrackerServer>(new TrackerServer(std::move(impl)));
}

const std::string& TrackerServer::address() const { return impl_->address(); }
const std::string& TrackerServer::in_process() const { return impl_->in_process(); }
std::vector<Metric> TrackerServer::Metrics() { return impl_->Metrics(); }
void TrackerServer::Shutdown() { impl_->Shutdown(); }

}  // namespace diapason
