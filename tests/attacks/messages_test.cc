// Messages that need far more memory once they are parsed than on the wire: 2 bytes for an empty submessage.
#include "tests/attacks/attack_fixture.h"
#include "tests/sanitizers.h"

namespace diapason {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class MessagesAttack : public AttackTest {
 protected:
  // Makes `calls` such calls at once, each over a connection of its own.
  static std::vector<grpc::Status> CallAtOnce(int calls, const std::string& address, const std::string& role,
                                              const std::string& method, const grpc::ByteBuffer& message) {
    std::vector<grpc::Status> answers(static_cast<size_t>(calls));
    std::vector<std::thread> threads;
    for (grpc::Status& answer : answers)
      threads.emplace_back([&] { answer = Call(Dial(address, role), method, message); });
    for (std::thread& thread : threads) thread.join();
    return answers;
  }
};

TEST_F(MessagesAttack, WithoutATokenNoMessageIsTaken) {
  auto service = Serve({"--tokens", Tokens(), "--metrics", "127.0.0.1:0"});
  const std::string address = service->Address();
  ASSERT_TRUE(IsHealthy(address)) << service->err();
  const int64_t before = ResidentBytes(service->pid());
  const grpc::ByteBuffer message = EmptySubmessages(2, 31 * kMiB);
  for (const char* method :
       {"/diapason.v1.Measure/Submit", "/diapason.v1.Tracker/Report", "/diapason.v1.Tuning/Submit"}) {
    for (const grpc::Status& status : CallAtOnce(4, address, "", method, message)) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method << status.error_message();
      EXPECT_EQ(status.error_message(), "no token came with the call: give one with --token-file");
    }
  }
  for (const grpc::Status& status : CallAtOnce(4, address, "reader", "/diapason.v1.Measure/Submit", message))
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
  EXPECT_LT(PeakBytes(service->pid()) - before, kTimesLarger * 100 * kMiB);
  EXPECT_TRUE(IsHealthy(address)) << service->err();
  EXPECT_NE(service->err().find(" warning call_refused peer=ipv4:127."), std::string::npos) << service->err();
  EXPECT_NE(service->err().find(" reason=no_token "), std::string::npos) << service->err();
  const std::string metrics = Fetch(MetricsAddress(*service));
  EXPECT_EQ(Number(metrics, "diapason_calls_refused_total{reason=\"no_token\"}"), 12);
  EXPECT_EQ(Number(metrics, "diapason_calls_refused_total{reason=\"token_of_another_role\"}"), 4);
}

TEST_F(MessagesAttack, WithATokenTheyAreCountedBeforeTheyAreParsed) {
  auto service = Serve({"--tokens", Tokens()});
  const std::string address = service->Address();
  ASSERT_TRUE(IsHealthy(address)) << service->err();
  const int64_t before = ResidentBytes(service->pid());
  const grpc::ByteBuffer message = EmptySubmessages(2, 31 * kMiB);
  for (const grpc::Status& status : CallAtOnce(8, address, "submitter", "/diapason.v1.Measure/Submit", message)) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              "the message SubmitRequest cannot be read, or has more than 16384 parts, which is the limit");
  }
  for (const grpc::Status& status : CallAtOnce(8, address, "worker", "/diapason.v1.Tracker/Report", message)) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(status.error_message(), "the message ReportRequest has 32505856 bytes, more than the limit of 8388608");
  }
  // Larger than any method takes: gRPC itself refuses.
  const grpc::Status largest =
      Call(Dial(address, "submitter"), "/diapason.v1.Measure/Submit", EmptySubmessages(2, 40 * kMiB));
  EXPECT_EQ(largest.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << largest.error_message();
  EXPECT_LT(PeakBytes(service->pid()) - before, kTimesLarger * 400 * kMiB);
  EXPECT_TRUE(IsHealthy(address)) << service->err();
}

}  // namespace
}  // namespace diapason
