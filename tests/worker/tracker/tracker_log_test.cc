// What a tracker's log tells of a measurement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/tracker/tracker_fixture.h"
#include "worker/process/convert.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrackerLogTest : public TrackerTest {
 protected:
  ~TrackerLogTest() override { SetLogLevel(LogLevel::kNone); }
  // A queue of job 3.
  std::string OpenJob() {
    v1::OpenRequest request;
    request.mutable_protocol()->set_low(1);
    request.mutable_protocol()->set_high(1);
    request.set_name("job 3 gemm");
    request.set_job("3");
    v1::OpenResponse response;
    EXPECT_TRUE(tracker_->Open(request, response).ok());
    return response.queue();
  }
  // What is logged while `what` happens.
  template <typename What>
  static std::string Logged(LogLevel level, const What& what) {
    SetLogLevel(level);
    testing::internal::CaptureStderr();
    what();
    SetLogLevel(LogLevel::kNone);
    return testing::internal::GetCapturedStderr();
  }
  static v1::MeasureResult Fault(const std::string& text) { return InfrastructureResult(MeasureStage::kRun, text); }
};

TEST_F(TrackerLogTest, EachStepOfATrialIsTold) {
  const std::string queue = OpenJob(), a = Register("a");
  const std::string of_it = " job=3 trial=7 queue=" + ShortId(queue) + " attempt=1 ";
  std::string lease;
  const std::string log = Logged(LogLevel::kDebug, [&] {
    ASSERT_TRUE(SubmitIds(queue, {7}).ok());
    const std::vector<v1::LeaseGrant> grants = Grants(a, 1);
    EXPECT_EQ(grants.at(0).job(), "3");
    lease = std::to_string(grants[0].lease());
    Report(a, {{grants[0].lease(), Timed()}});
  });
  EXPECT_THAT(log, HasSubstr("debug trial_leased" + of_it + "lease=" + lease + " worker=a device=cuda:0\n"));
  EXPECT_THAT(log, HasSubstr("debug trial_ends" + of_it + "outcome=timing\n"));
  EXPECT_THAT(log, Not(HasSubstr(queue)));  // a secret
}

TEST_F(TrackerLogTest, FaultsNameTheTrialTheyHit) {
  const std::string queue = OpenJob();
  std::string a = Register("a"), b = Register("b");
  ASSERT_TRUE(SubmitIds(queue, {7}).ok());
  ASSERT_EQ(Grants(a, 1).size(), 1u);
  const std::string of_it = " job=3 trial=7 queue=" + ShortId(queue) + " attempt=";
  // A worker that vanishes.
  std::string log = Logged(LogLevel::kInfo, [&] { a = Register("a"); });
  EXPECT_THAT(log, HasSubstr("warning trial_retried" + of_it +
                             "1 why=\"worker 'a' was lost: the worker started a new session\"\n"));
  // The last attempt.
  log = Logged(LogLevel::kInfo, [&] { Report(b, {{Grants(b, 1).at(0).lease(), Fault("the disk is full")}}); });
  EXPECT_THAT(log, HasSubstr("warning trial_ends" + of_it + "2 outcome=infrastructure why=\"the disk is full\"\n"));
}

TEST_F(TrackerLogTest, ABlamedCandidateIsNamed) {
  const std::string queue = OpenJob(), a = Register("a"), b = Register("b");
  ASSERT_TRUE(SubmitIds(queue, {8}).ok());
  v1::MeasureResult lost = Fault("killed");
  lost.set_runner_lost(true);
  const std::string log = Logged(LogLevel::kInfo, [&] {
    Report(a, {{Grants(a, 1).at(0).lease(), lost}});
    Report(b, {{Grants(b, 1).at(0).lease(), lost}});
  });
  EXPECT_THAT(log, HasSubstr("warning trial_blamed job=3 trial=8 queue=" + ShortId(queue) +
                             " attempt=2 why=\"two workers lost their runners to it: worker 'a': killed; worker 'b': "
                             "killed\"\n"));
}

}  // namespace
}  // namespace diapason
