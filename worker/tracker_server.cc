#include "worker/tracker_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "compiler/tensor/check.h"
#include "diapason/v1/measure.grpc.pb.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "worker/authorize.h"
#include "worker/grpc_status.h"
#include "worker/service_host.h"
#include "worker/tracker.h"
#include "worker/tracker_store.h"

namespace diapason {
namespace {

constexpr std::chrono::milliseconds kTick{50};

using Reactor = grpc::ServerUnaryReactor;

Reactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// What was done is told when it is stored.
Reactor* AnswerStored(grpc::CallbackServerContext* context, Tracker& tracker, const absl::Status& status) {
  Reactor* reactor = context->DefaultReactor();
  tracker.WhenStored([reactor, answer = ToGrpc(status)] { reactor->Finish(answer); });
  return reactor;
}

// A call that may wait holds no thread: the tracker finishes it.
template <typename Response>
Tracker::Reply<Response> Finisher(Reactor* reactor, Response* response) {
  return [reactor, response](const absl::Status& status, Response answer) {
    *response = std::move(answer);
    reactor->Finish(ToGrpc(status));
  };
}

class MeasureService final : public v1::Measure::CallbackService {
 public:
  MeasureService(Tracker& tracker, std::shared_ptr<Authority> authority)
      : tracker_(tracker), authority_(std::move(authority)) {}

  Reactor* Open(grpc::CallbackServerContext* c, const v1::OpenRequest* q, v1::OpenResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kSubmitter);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Open(*q, *a, OwnerOf(*c, authority_))) : Answer(c, may);
  }
  Reactor* Submit(grpc::CallbackServerContext* c, const v1::SubmitRequest* q, v1::SubmitResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kSubmitter);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Submit(*q, *a)) : Answer(c, may);
  }
  Reactor* Next(grpc::CallbackServerContext* c, const v1::NextRequest* q, v1::NextResponse* a) override {
    if (absl::Status may = Authorize(*c, authority_, Role::kSubmitter); !may.ok()) return Answer(c, may);
    Reactor* reactor = c->DefaultReactor();
    tracker_.Next(*q, Finisher(reactor, a));
    return reactor;
  }
  Reactor* Cancel(grpc::CallbackServerContext* c, const v1::CancelRequest* q, v1::CancelResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kSubmitter);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Cancel(*q, *a)) : Answer(c, may);
  }
  Reactor* Close(grpc::CallbackServerContext* c, const v1::CloseRequest* q, v1::CloseResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kSubmitter);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Close(*q, *a)) : Answer(c, may);
  }

 private:
  Tracker& tracker_;
  const std::shared_ptr<Authority> authority_;
};

class TrackerService final : public v1::Tracker::CallbackService {
 public:
  TrackerService(Tracker& tracker, std::shared_ptr<Authority> authority)
      : tracker_(tracker), authority_(std::move(authority)) {}

  Reactor* Register(grpc::CallbackServerContext* c, const v1::RegisterRequest* q, v1::RegisterResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kWorker);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Register(*q, *a)) : Answer(c, may);
  }
  Reactor* Lease(grpc::CallbackServerContext* c, const v1::LeaseRequest* q, v1::LeaseResponse* a) override {
    if (absl::Status may = Authorize(*c, authority_, Role::kWorker); !may.ok()) return Answer(c, may);
    Reactor* reactor = c->DefaultReactor();
    tracker_.Lease(*q, Finisher(reactor, a));
    return reactor;
  }
  Reactor* Report(grpc::CallbackServerContext* c, const v1::ReportRequest* q, v1::ReportResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kWorker);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Report(*q, *a)) : Answer(c, may);
  }
  Reactor* Leave(grpc::CallbackServerContext* c, const v1::LeaveRequest* q, v1::LeaveResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kWorker);
    return may.ok() ? AnswerStored(c, tracker_, tracker_.Leave(*q, *a)) : Answer(c, may);
  }
  Reactor* ListWorkers(grpc::CallbackServerContext* c, const v1::ListWorkersRequest* q,
                       v1::ListWorkersResponse* a) override {
    const absl::Status may = Authorize(*c, authority_, Role::kReader);
    return Answer(c, may.ok() ? tracker_.ListWorkers(*q, *a) : may);
  }

 private:
  Tracker& tracker_;
  const std::shared_ptr<Authority> authority_;
};

}  // namespace

class TrackerServer::Impl {
 public:
  Impl(ServiceHostOptions host, TrackerOptions options, std::unique_ptr<TrackerStore> store)
      : host_options_(std::move(host)),
        tracker_(std::move(options), std::move(store)),
        measure_(tracker_, host_options_.credentials.authority),
        workers_(tracker_, host_options_.credentials.authority) {}
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
  std::vector<Metric> Metrics() { return tracker_.Metrics(); }

  void Shutdown() {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(stopping_, true)) return;
    }
    changed_.notify_all();
    if (ticker_.joinable()) ticker_.join();
    tracker_.Shutdown();
    if (host_ != nullptr) host_->Shutdown();
  }

 private:
  void Tick() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kTick, [this] { return stopping_; })) {
      lock.unlock();
      tracker_.Tick();
      lock.lock();
    }
  }

  const ServiceHostOptions host_options_;
  Tracker tracker_;
  MeasureService measure_;
  TrackerService workers_;
  std::unique_ptr<ServiceHost> host_;
  std::thread ticker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
};

TrackerServer::TrackerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrackerServer::~TrackerServer() = default;

absl::StatusOr<std::unique_ptr<TrackerServer>> TrackerServer::Start(const ServiceHostOptions& host, TrackerOptions options,
                                                                    const std::string& state,
                                                                    std::vector<grpc::Service*> services) {
  std::unique_ptr<TrackerStore> store;
  if (!state.empty()) {
    ASSIGN_OR_RETURN(store, TrackerStore::Open(state));
  }
  auto impl = std::make_unique<Impl>(host, std::move(options), std::move(store));
  if (absl::Status status = impl->Start(std::move(services)); !status.ok()) return status;
  return std::unique_ptr<TrackerServer>(new TrackerServer(std::move(impl)));
}

const std::string& TrackerServer::address() const { return impl_->address(); }
const std::string& TrackerServer::in_process() const { return impl_->in_process(); }
std::vector<Metric> TrackerServer::Metrics() { return impl_->Metrics(); }
void TrackerServer::Shutdown() { impl_->Shutdown(); }

}  // namespace diapason
