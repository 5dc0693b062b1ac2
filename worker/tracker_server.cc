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
  explicit MeasureService(Tracker& tracker) : tracker_(tracker) {}

  Reactor* Open(grpc::CallbackServerContext* c, const v1::OpenRequest* q, v1::OpenResponse* a) override {
    return Answer(c, tracker_.Open(*q, *a));
  }
  Reactor* Submit(grpc::CallbackServerContext* c, const v1::SubmitRequest* q, v1::SubmitResponse* a) override {
    return Answer(c, tracker_.Submit(*q, *a));
  }
  Reactor* Next(grpc::CallbackServerContext* c, const v1::NextRequest* q, v1::NextResponse* a) override {
    Reactor* reactor = c->DefaultReactor();
    tracker_.Next(*q, Finisher(reactor, a));
    return reactor;
  }
  Reactor* Cancel(grpc::CallbackServerContext* c, const v1::CancelRequest* q, v1::CancelResponse* a) override {
    return Answer(c, tracker_.Cancel(*q, *a));
  }
  Reactor* Close(grpc::CallbackServerContext* c, const v1::CloseRequest* q, v1::CloseResponse* a) override {
    return Answer(c, tracker_.Close(*q, *a));
  }

 private:
  Tracker& tracker_;
};

class TrackerService final : public v1::Tracker::CallbackService {
 public:
  explicit TrackerService(Tracker& tracker) : tracker_(tracker) {}

  Reactor* Register(grpc::CallbackServerContext* c, const v1::RegisterRequest* q, v1::RegisterResponse* a) override {
    return Answer(c, tracker_.Register(*q, *a));
  }
  Reactor* Lease(grpc::CallbackServerContext* c, const v1::LeaseRequest* q, v1::LeaseResponse* a) override {
    Reactor* reactor = c->DefaultReactor();
    tracker_.Lease(*q, Finisher(reactor, a));
    return reactor;
  }
  Reactor* Report(grpc::CallbackServerContext* c, const v1::ReportRequest* q, v1::ReportResponse* a) override {
    return Answer(c, tracker_.Report(*q, *a));
  }
  Reactor* Leave(grpc::CallbackServerContext* c, const v1::LeaveRequest* q, v1::LeaveResponse* a) override {
    return Answer(c, tracker_.Leave(*q, *a));
  }
  Reactor* ListWorkers(grpc::CallbackServerContext* c, const v1::ListWorkersRequest* q,
                       v1::ListWorkersResponse* a) override {
    return Answer(c, tracker_.ListWorkers(*q, *a));
  }

 private:
  Tracker& tracker_;
};

}  // namespace

class TrackerServer::Impl {
 public:
  Impl(TrackerOptions options, std::unique_ptr<TrackerStore> store)
      : tracker_(std::move(options), std::move(store)), measure_(tracker_), workers_(tracker_) {}
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::string& address, std::vector<grpc::Service*> services) {
    RETURN_IF_ERROR(tracker_.Restore());
    services.push_back(&measure_);
    services.push_back(&workers_);
    ASSIGN_OR_RETURN(host_, ServiceHost::Start(address, services));
    ticker_ = std::thread([this] { Tick(); });
    return absl::OkStatus();
  }

  const std::string& address() const { return host_->address(); }

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

absl::StatusOr<std::unique_ptr<TrackerServer>> TrackerServer::Start(const std::string& address, TrackerOptions options,
                                                                    const std::string& state,
                                                                    std::vector<grpc::Service*> services) {
  std::unique_ptr<TrackerStore> store;
  if (!state.empty()) {
    ASSIGN_OR_RETURN(store, TrackerStore::Open(state));
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(store));
  if (absl::Status status = impl->Start(address, std::move(services)); !status.ok()) return status;
  return std::unique_ptr<TrackerServer>(new TrackerServer(std::move(impl)));
}

const std::string& TrackerServer::address() const { return impl_->address(); }
void TrackerServer::Shutdown() { impl_->Shutdown(); }

}  // namespace diapason
