// Many calls that wait: of somebody who may only look, and of workers, whose calls wait by nature.
#include "compiler/tensor/target.h"
#include "diapason/v1/measure.grpc.pb.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "diapason/v1/tuning.grpc.pb.h"
#include "tests/attacks/attack_fixture.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

class PollsAttack : public AttackTest {};

TEST_F(PollsAttack, ThoseOfAReaderAreLimitedAndHoldUpNobody) {
  auto service = Serve({"--tokens", Tokens(), "--metrics", "127.0.0.1:0"});
  const std::string address = service->Address();
  std::ofstream(Path("submitter")) << Token("submitter");
  std::filesystem::permissions(Path("submitter"), std::filesystem::perms::owner_read);
  const CliResult submitted =
      Cli({"submit", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1", "--trials", "6",
           "--service", address, "--token-file", Path("submitter")});
  ASSERT_EQ(submitted.code, 0) << submitted.err << service->err();

  constexpr int kPolls = 256, kConnections = 4, kAllowed = 128;
  std::vector<std::unique_ptr<v1::Tuning::Stub>> stubs;
  for (int i = 0; i < kConnections; ++i) stubs.push_back(v1::Tuning::NewStub(Dial(address, "reader")));
  v1::GetJobRequest request;
  request.set_job(1);
  request.set_seen(uint64_t{1} << 60);
  request.set_max_wait_ms(30000);
  struct Poll {
    grpc::ClientContext context;
    v1::Job job;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Job>> call;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Poll>> polls;
  for (int i = 0; i < kPolls; ++i) {
    auto poll = std::make_unique<Poll>();
    poll->call = stubs[static_cast<size_t>(i % kConnections)]->AsyncGetJob(&poll->context, request, &queue);
    poll->call->Finish(&poll->job, &poll->status, poll.get());
    polls.push_back(std::move(poll));
  }
  // Those over the limit are told so, at once.
  for (int i = 0; i < kPolls - kAllowed; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_EQ(queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + std::chrono::seconds(10)),
              grpc::CompletionQueue::GOT_EVENT)
        << i;
    EXPECT_EQ(static_cast<Poll*>(tag)->status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(static_cast<Poll*>(tag)->status.error_message(),
              "this peer has 128 calls in progress here, which is the limit: wait for some of them");
  }
  // The others wait, and everybody else is served: no thread is held.
  const auto began = std::chrono::steady_clock::now();
  const CliResult listed = Cli({"jobs", "list", "--service", address, "--token-file", Path("submitter"), "--json"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_TRUE(IsHealthy(address)) << service->err();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  // A caller that goes is forgotten, and makes room.
  for (const auto& poll : polls) poll->context.TryCancel();
  for (int i = 0; i < kAllowed; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(static_cast<Poll*>(tag)->status.error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(WaitFor(
      [&] {
        grpc::ClientContext context;
        v1::Job job;
        v1::GetJobRequest now;
        now.set_job(1);
        return stubs[0]->GetJob(&context, now, &job).ok();
      },
      5));
}

// Without tokens the workers of a host and its tuners look alike, but for what they call.
TEST_F(PollsAttack, ThoseOfWorkersHoldUpNoTunerOfTheirHost) {
  const Process tracker({"tracker", "--listen", OwnLoopback(), "--metrics", "127.0.0.1:0"}, Path("tracker"));
  ASSERT_NE(tracker.Address(), "") << tracker.err();
  constexpr int kWorkers = 200;
  const auto stub = v1::Tracker::NewStub(Dial(tracker.Address()));
  struct Poll {
    grpc::ClientContext context;
    v1::LeaseResponse leases;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::LeaseResponse>> call;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Poll>> polls;
  for (int i = 0; i < kWorkers; ++i) {
    v1::RegisterRequest worker;
    worker.mutable_protocol()->set_high(1);
    worker.set_worker_id("w" + std::to_string(i));
    worker.set_name(worker.worker_id());
    v1::DeviceDescription& device = *worker.add_devices();
    device.set_name("cpu:0");
    device.set_target("cpu");
    ToProto(DefaultFacts(Target::Parse("cpu").value()), *device.mutable_facts());
    device.set_state(v1::DEVICE_STATE_READY);
    v1::RegisterResponse session;
    grpc::ClientContext context;
    ASSERT_EQ(FromGrpc(stub->Register(&context, worker, &session)), absl::OkStatus());
    v1::LeaseRequest ask;
    ask.set_session(session.session());
    ask.add_capacity()->set_device("cpu:0");
    ask.mutable_capacity(0)->set_free(1);
    ask.set_max_wait_ms(30000);
    auto poll = std::make_unique<Poll>();
    poll->call = stub->AsyncLease(&poll->context, ask, &queue);
    poll->call->Finish(&poll->leases, &poll->status, poll.get());
    polls.push_back(std::move(poll));
  }
  const std::string metrics = MetricsAddress(tracker);
  EXPECT_TRUE(WaitFor([&] { return Number(Fetch(metrics), "diapason_calls") >= kWorkers; })) << Fetch(metrics);
  const auto measure = v1::Measure::NewStub(Dial(tracker.Address()));
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse opened;
  grpc::ClientContext context;
  EXPECT_EQ(FromGrpc(measure->Open(&context, open, &opened)), absl::OkStatus());
  for (const auto& poll : polls) poll->context.TryCancel();
  for (int i = 0; i < kWorkers; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
  }
}

}  // namespace
}  // namespace diapason
