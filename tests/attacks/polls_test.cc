// Many calls that wait, made by somebody who may only look.
#include "diapason/v1/tuning.grpc.pb.h"
#include "tests/attacks/attack_fixture.h"

namespace diapason {
namespace {

class PollsAttack : public AttackTest {};

TEST_F(PollsAttack, ThoseOfAReaderAreLimitedAndHoldUpNobody) {
  auto service = Serve({"--tokens", Tokens(), "--metrics", "127.0.0.1:0"});
  const std::string address = service->Address();
  std::ofstream(Path("submitter")) << Token("submitter");
  std::filesystem::permissions(Path("submitter"), std::filesystem::perms::owner_read);
  const CliResult submitted = Cli({"submit", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1",
                                   "--trials", "6", "--service", address, "--token-file", Path("submitter")});
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

}  // namespace
}  // namespace diapason
