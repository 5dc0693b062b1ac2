// Requests without a result, and how they get it.
#include "worker/pipeline/jobs.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace diapason::pipeline {
namespace {

class JobsTest : public testing::Test {
 protected:
  JobsTest() : devices_(1) { devices_[0].set_name("cpu:0"); }
  JobPtr Add(uint64_t handle) {
    auto job = std::make_shared<Job>();
    job->handle = handle;
    job->request.set_id(100 + handle);
    jobs_.Add(job);
    return job;
  }
  std::vector<v1::DeviceDescription> devices_;
  int probes_ = 0;
  Jobs jobs_{devices_, [this](const JobPtr&) { ++probes_; }};
};

TEST_F(JobsTest, EachIsAnsweredOnce) {
  const JobPtr job = Add(1);
  job->result.mutable_times()->set_run_started_at(7);
  jobs_.Fail(job, ErrorKind::kRunCrash, MeasureStage::kRun, "it died");
  jobs_.Fail(job, ErrorKind::kCompile, MeasureStage::kCompile, "too late");
  jobs_.Cancel(1, "too late, too");
  const std::vector<JobPtr> answers = jobs_.TakeAnswers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0]->result.id(), 101u);
  EXPECT_EQ(answers[0]->result.error().text(), "it died");
  EXPECT_EQ(answers[0]->result.on().device(), "cpu:0");
  EXPECT_TRUE(jobs_.TakeAnswers().empty());
}

TEST_F(JobsTest, AllAreCancelledAtTheEnd) {
  Add(1);
  Add(2);
  jobs_.Cancel(3, "there is none");
  jobs_.CancelAll("the worker stops");
  const std::vector<JobPtr> answers = jobs_.TakeAnswers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1]->result.cancelled().reason(), "the worker stops");
}

TEST_F(JobsTest, ProbesAreNobodysAnswers) {
  const auto probe = std::make_shared<Job>();
  probe->probe = true;
  jobs_.Finish(probe);
  jobs_.Finish(probe);
  EXPECT_EQ(probes_, 1);
  EXPECT_TRUE(jobs_.TakeAnswers().empty());
}

}  // namespace
}  // namespace diapason::pipeline
