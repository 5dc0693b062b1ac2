// The agent against a tracker that is played by hand.
#include "worker/agent/agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>

#include "diapason/v1/tracker.grpc.pb.h"
#include "tests/worker/testing.h"
#include "worker/rpc/log.h"
#include "worker/rpc/service_host.h"

namespace diapason {
namespace {

// Grants one lease, and says that it is over as soon as it is renewed.
class CruelTracker final : public v1::Tracker::Service {
 public:
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*, v1::RegisterResponse* a) override {
    a->set_session("session");
    a->set_heartbeat_ms(20);
    return grpc::Status::OK;
  }
  grpc::Status Lease(grpc::ServerContext* c, const v1::LeaseRequest* q, v1::LeaseResponse* a) override {
    while (!granting && !c->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    a->set_batch(q->received() + 1);
    if (granted.exchange(true)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return grpc::Status::OK;
    }
    v1::LeaseGrant& grant = *a->add_grants();
    grant.set_lease(7);
    grant.set_device("cpu:0");
    *grant.mutable_request() = FakeRequest(1, "hang");
    return grpc::Status::OK;
  }
  grpc::Status Report(grpc::ServerContext*, const v1::ReportRequest* q, v1::ReportResponse* a) override {
    for (const uint64_t lease : q->renew()) a->add_over(lease);
    if (q->renew_size() > 0) told_over = true;
    ++reports;
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest*, v1::LeaveResponse*) override {
    return grpc::Status::OK;
  }

  std::atomic<bool> granting = false, granted = false, told_over = false;
  std::atomic<int> reports = 0;
};

// Puts stderr on a pipe that nobody reads: who writes a line to the log waits.
class BlockedLog {
 public:
  BlockedLog() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    fcntl(pipe_[1], F_SETFL, O_NONBLOCK);
    const std::string filling(4096, '.');
    while (write(pipe_[1], filling.data(), filling.size()) > 0) {
    }
    while (write(pipe_[1], ".", 1) > 0) {
    }
    fcntl(pipe_[1], F_SETFL, 0);
    dup2(pipe_[1], STDERR_FILENO);
    SetLogLevel(LogLevel::kDebug);
  }
  ~BlockedLog() { Release(); }
  // Who waits goes on.
  void Release() {
    if (before_ < 0) return;
    SetLogLevel(LogLevel::kNone);
    fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    char text[4096];
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (std::chrono::steady_clock::now() < until) {
      if (read(pipe_[0], text, sizeof text) <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, pipe_[0], pipe_[1]}) close(fd);
    before_ = -1;
  }

 private:
  int before_, pipe_[2] = {-1, -1};
};

// The agent has taken a lease and is about to begin its work (it writes that to the log, which holds it up) when it
// hears that the lease is over: the work must not run on.
TEST(AgentTest, ALeaseThatIsOverBeforeItsWorkBeginsDoesNotRun) {
  TemporaryFolder folder;
  CruelTracker tracker;
  auto host = ServiceHost::Start({"127.0.0.1:0", {}}, {&tracker});
  ASSERT_TRUE(host.ok()) << host.status();
  AgentOptions options;
  options.tracker = (*host)->address();
  options.worker_id = options.name = "a";
  options.pipeline = FakeOptions(folder);
  options.pipeline.build_timeout_seconds = 60;
  auto agent = WorkerAgent::Start(std::move(options));
  ASSERT_TRUE(agent.ok()) << agent.status();
  ASSERT_TRUE((*agent)->WaitUntilRegistered(20).ok());
  // The answer to its first report, which it writes to the log, has been heard.
  for (int i = 0; i < 1000 && tracker.reports < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  BlockedLog blocked;
  tracker.granting = true;
  for (int i = 0; i < 1000 && !tracker.told_over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(tracker.told_over);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the agent hears it
  blocked.Release();
  const auto began = std::chrono::steady_clock::now();
  while ((*agent)->pipeline().Unfinished(0) > 0 && SecondsSince(began) < 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ((*agent)->pipeline().Unfinished(0), 0) << "a measurement that nobody wants runs on";
  (*agent)->Stop();
}

}  // namespace
}  // namespace diapason
