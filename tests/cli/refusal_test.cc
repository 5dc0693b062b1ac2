// What workers are told by a tracker that does not take them, from the call to the last line of their log.
#include <grpcpp/grpcpp.h>

#include <functional>
#include <regex>

#include "diapason/v1/tracker.grpc.pb.h"
#include "tests/cli/fleet_fixture.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

// Hands on to a real tracker what workers register with, after a change: as if they were other workers.
class ChangedWorkers final : public v1::Tracker::Service {
 public:
  ChangedWorkers(const std::string& tracker, std::function<void(v1::RegisterRequest&)> change)
      : change_(std::move(change)),
        tracker_(v1::Tracker::NewStub(grpc::CreateChannel(tracker, grpc::InsecureChannelCredentials()))) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    v1::RegisterRequest changed = *request;
    change_(changed);
    grpc::ClientContext context;
    return tracker_->Register(&context, changed, response);
  }
  const std::string& address() const { return address_; }

 private:
  const std::function<void(v1::RegisterRequest&)> change_;
  const std::unique_ptr<v1::Tracker::Stub> tracker_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;  // last: ends before what its calls use
};

// The command ends: no tracker of that version will ever take it.
TEST_F(FleetCli, AWorkerOfAnotherVersionEndsWithTheReason) {
  auto tracker = Tracker();
  ChangedWorkers proxy(tracker->Address(), [](v1::RegisterRequest& request) {
    request.mutable_protocol()->set_low(7);
    request.mutable_protocol()->set_high(9);
  });
  auto worker = Worker(proxy.address(), "newer");
  EXPECT_EQ(worker->Wait(30), 1);
  const std::string why =
      "this tracker speaks protocol 1 and the caller 7 to 9: install the same version of diapason on both";
  EXPECT_NE(worker->err().find(" warning worker_not_registered tracker=" + proxy.address() + " worker=newer why=\"" +
                               why + "\"\n"),
            std::string::npos)
      << worker->err();
  EXPECT_NE(worker->err().find("\nerror: " + why + "\n"), std::string::npos) << worker->err();
}

// The second says why it has to wait, and gets in when the first has gone.
TEST_F(FleetCli, ADeviceThatAnotherWorkerHasIsNamedAndWaitedFor) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  ChangedWorkers proxy(address, [](v1::RegisterRequest& request) {
    request.mutable_devices(0)->set_target("cuda -arch=sm_90");
    v1::DeviceFacts& facts = *request.mutable_devices(0)->mutable_facts();
    ToProto(DefaultFacts(Target::Parse("cuda -arch=sm_90").value()), facts);
    facts.set_uuid("GPU-6e3f");
  });
  auto first = Worker(proxy.address(), "first");
  const auto registered = [](const Process& worker, const std::string& name) {
    const std::regex line(" info worker_registered tracker=[0-9.:]+ worker=" + name + "\n");
    return std::regex_search(worker.err(), line);
  };
  ASSERT_TRUE(WaitFor([&] { return registered(*first, "first"); })) << first->err();
  auto second = Worker(proxy.address(), "second");
  ASSERT_TRUE(WaitFor([&] {
    return second->err().find(
               " warning worker_not_registered tracker=" + proxy.address() +
               " worker=second why=\"device 'cpu:0' (GPU-6e3f) of worker 'second' is registered by worker "
               "'first' already: stop one of them, or give them different devices\"\n") != std::string::npos;
  })) << second->err();
  EXPECT_FALSE(second->Poll().has_value());
  first->Kill();
  EXPECT_TRUE(WaitFor([&] { return registered(*second, "second"); })) << second->err() << tracker->err();
}

}  // namespace
}  // namespace diapason
