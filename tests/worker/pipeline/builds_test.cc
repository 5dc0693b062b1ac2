// What is to be built, and what was: each program once.
#include "worker/pipeline/builds.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace diapason::pipeline {
namespace {

class BuildsTest : public testing::Test {
 protected:
  JobPtr Add(const std::string& schedule, v1::MeasureMode mode = v1::MEASURE_MODE_TIME) {
    auto job = std::make_shared<Job>();
    job->handle = ++handles_;
    job->target = "cpu";
    job->request.set_workload("w");
    job->request.set_schedule(schedule);
    job->request.set_mode(mode);
    jobs_.Add(job);
    builds_.Add(job);
    return job;
  }
  void Build(const BuildTask& task) {
    v1::BuildReply reply;
    reply.set_program("program");
    builds_.Built(task, reply);
  }
  const std::vector<v1::DeviceDescription> devices_{1};
  const v1::DeviceFacts facts_;
  PipelineOptions options_;
  uint64_t handles_ = 0;
  v1::WorkerStatistics counts_;
  std::vector<JobPtr> built_;
  Jobs jobs_{devices_, [](const JobPtr&) {}};
  Builds builds_{options_, jobs_, counts_, [this](int) -> const v1::DeviceFacts& { return facts_; },
                 [this](const JobPtr& job) {
                   if (job->built()) built_.push_back(job);
                 }};
};

TEST_F(BuildsTest, WhatWasBuiltIsNotBuiltAgain) {
  const JobPtr first = Add("s");
  Build(*builds_.Next());
  EXPECT_EQ(built_, std::vector<JobPtr>{first});
  const JobPtr second = Add("s");
  EXPECT_EQ(builds_.size(), 0u);
  EXPECT_EQ(built_, (std::vector<JobPtr>{first, second}));
  EXPECT_EQ(*second->program, "program");
  Add("another");
  EXPECT_EQ(builds_.size(), 1u);
}

TEST_F(BuildsTest, OneReferenceIsForAllThatWaitForIt) {
  Add("s", v1::MEASURE_MODE_VERIFY);
  Add("t", v1::MEASURE_MODE_VERIFY);
  ASSERT_EQ(builds_.size(), 3u);
  const BuildTask first = *builds_.Next(), reference = *builds_.Next(), second = *builds_.Next();
  ASSERT_NE(reference.reference, nullptr);
  EXPECT_TRUE(builds_.BuildJobOf(reference).reference());
  Build(first);
  Build(second);
  EXPECT_TRUE(built_.empty());
  Build(reference);
  EXPECT_EQ(built_.size(), 2u);
}

TEST_F(BuildsTest, AReferenceThatCannotBeHadSaysNothingOfTheCandidate) {
  Add("s", v1::MEASURE_MODE_VERIFY);
  builds_.Next();
  builds_.Failed(*builds_.Next(), ErrorKind::kBuildCrash, MeasureStage::kCompile, "it died");
  const std::vector<JobPtr> answers = jobs_.TakeAnswers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0]->result.error().kind(), "infrastructure");
  EXPECT_EQ(answers[0]->result.error().text(), "the reference implementation could not be built: it died");
  EXPECT_EQ(counts_.failed_builds(), 1u);
}

TEST_F(BuildsTest, WhatIsOfNoUseIsNotBuilt) {
  jobs_.Cancel(Add("s")->handle, "not wanted");
  EXPECT_FALSE(builds_.Next().has_value());
  Add("t");
  builds_.GiveUp("no builder starts");
  EXPECT_EQ(builds_.size(), 0u);
  EXPECT_EQ(jobs_.TakeAnswers().back()->result.error().text(), "no builder starts");
}

}  // namespace
}  // namespace diapason::pipeline
