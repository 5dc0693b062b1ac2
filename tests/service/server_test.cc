// The service's port, asked as programs of other versions would.
#include "service/server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "diapason/v1/tracker.grpc.pb.h"
#include "diapason/v1/tuning.grpc.pb.h"
#include "worker/rpc/channel.h"

namespace diapason {
namespace {

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "server-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    CoordinatorOptions options;
    options.listen = "127.0.0.1:0";
    options.jobs.history = folder_ + "/h.db";
    auto server = CoordinatorServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
  std::unique_ptr<CoordinatorServer> server_;
};

TEST_F(ServerTest, ProgramsOfOtherVersionsAreRefused) {
  const auto channel = MakeChannel(server_->address());
  auto of = [](const std::string& what) {
    return absl::FailedPreconditionError(
        "this " + what + " speaks protocol 1 and the caller 7 to 9: install the same version of diapason on both");
  };
  v1::ProtocolRange newer;
  newer.set_low(7);
  newer.set_high(9);
  const auto tuning = v1::Tuning::NewStub(channel);
  v1::GreetRequest greet;
  v1::GreetResponse greeted;
  *greet.mutable_protocol() = newer;
  {
    grpc::ClientContext context;
    EXPECT_EQ(FromGrpc(tuning->Greet(&context, greet, &greeted)), of("service"));
  }
  // A worker, of the service's own tracker.
  const auto tracker = v1::Tracker::NewStub(channel);
  v1::RegisterRequest worker;
  v1::RegisterResponse registered;
  worker.set_worker_id("w");
  worker.add_devices()->set_name("cpu:0");
  *worker.mutable_protocol() = newer;
  {
    grpc::ClientContext context;
    EXPECT_EQ(FromGrpc(tracker->Register(&context, worker, &registered)), of("tracker"));
  }
  // What both speak is taken, the highest.
  newer.set_low(1);
  *greet.mutable_protocol() = newer;
  grpc::ClientContext context;
  EXPECT_EQ(FromGrpc(tuning->Greet(&context, greet, &greeted)), absl::OkStatus());
  EXPECT_EQ(greeted.protocol(), 1u);
}

}  // namespace
}  // namespace diapason
