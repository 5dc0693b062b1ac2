// A whole network as one more kind of measurement, by fake builders and runners.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "diapason/v1/tracker.pb.h"
#include "tests/worker/testing.h"
#include "worker/pipeline/pipeline.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

// x -> doubled -> doubled again -> ..., each by a program of its own; `words` are the fake schedule of each.
v1::MeasureRequest NetworkRequest(uint64_t id, const std::vector<std::string>& words, int64_t elements = 16) {
  v1::MeasureRequest request;
  request.set_id(id);
  request.set_target("cpu");
  request.set_mode(v1::MEASURE_MODE_VERIFY);
  v1::NetworkCheck& check = *request.mutable_network();
  check.set_seed(1);
  v1::NetworkPlan& plan = *check.mutable_plan();
  plan.set_version(1);
  plan.set_name("chain");
  plan.add_tasks(SerializeDag(DoublingDag(elements)));
  plan.add_task_names("doubling");
  const auto add_tensor = [&](const std::string& name) {
    v1::PlannedTensor& tensor = *plan.add_tensors();
    tensor.set_name(name);
    tensor.set_dtype(static_cast<uint32_t>(DType::kFloat32));
    tensor.add_shape(elements);
  };
  add_tensor("x");
  plan.add_inputs(0);
  for (size_t i = 0; i < words.size(); ++i) {
    add_tensor("t" + std::to_string(i));
    plan.add_programs()->set_task(0);
    v1::PlannedStep& step = *plan.add_steps();
    step.set_program(static_cast<uint32_t>(i));
    step.add_inputs(static_cast<uint32_t>(i));
    step.add_outputs(static_cast<uint32_t>(i + 1));
    check.add_schedules(FakeSchedule(words[i]));
  }
  plan.add_outputs(static_cast<uint32_t>(words.size()));
  return request;
}

class NetworkTest : public testing::Test {
 protected:
  void Start(const PipelineOptions& options) {
    auto pipeline = Pipeline::Start(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
  }
  void SetUp() override { Start(FakeOptions(folder_)); }
  void TearDown() override { pipeline_->Stop(); }
  v1::MeasureResult Check(v1::MeasureRequest request) {
    request.set_id(next_id_++);
    pipeline_->Submit(0, request, box_.Taker());
    return box_.Wait(request.id());
  }
  v1::MeasureResult Check(const std::vector<std::string>& words) { return Check(NetworkRequest(1, words)); }

  TemporaryFolder folder_;
  ResultBox box_;
  std::unique_ptr<Pipeline> pipeline_;
  uint64_t next_id_ = 1;
};

TEST_F(NetworkTest, ARightNetworkIsVerifiedAndNotTimed) {
  const v1::MeasureResult result = Check({"a", "b", "c"});
  ASSERT_TRUE(result.has_timing()) << result.DebugString();
  EXPECT_EQ(result.timing().samples_size(), 0);
  EXPECT_TRUE(result.verification().ok());
  EXPECT_EQ(result.verification().max_abs_error(), 0);
  EXPECT_EQ(result.on().device(), "cpu:0");
  EXPECT_EQ(result.compiler(), "fake 1.0");
  EXPECT_GT(result.times().run_ended_at(), result.times().build_started_at());
}

TEST_F(NetworkTest, AWrongProgramIsTold) {
  for (const char* kernel : {"kernel=wrong", "kernel=skip", "kernel=nan"}) {
    const v1::MeasureResult result = Check({"a", kernel, "c"});
    ASSERT_TRUE(result.has_error()) << kernel;
    EXPECT_EQ(result.error().kind(), "wrong_result");
    EXPECT_EQ(result.error().stage(), "run");
    EXPECT_FALSE(result.verification().ok());
    EXPECT_GT(result.verification().max_abs_error(), 0);
    EXPECT_THAT(result.verification().text(), HasSubstr("output 't2' at element "));
    EXPECT_THAT(result.verification().text(), HasSubstr("(inputs of seed 1, run 1)"));
    EXPECT_EQ(result.verification().text(), result.error().text());
  }
  EXPECT_TRUE(Check({"a", "b", "c"}).verification().ok());
}

TEST_F(NetworkTest, ProcessesThatAreLostAreToldAndTheNextRequestIsServed) {
  EXPECT_EQ(Check({"a", "kernel=crash"}).error().kind(), "run_crash");
  EXPECT_EQ(Check({"a", "kernel=lose"}).error().kind(), "illegal_access");
  EXPECT_EQ(Check({"crash", "b"}).error().kind(), "build_crash");
  v1::MeasureRequest hangs = NetworkRequest(1, {"a", "kernel=hang"});
  hangs.set_verify_timeout_seconds(1);
  EXPECT_EQ(Check(hangs).error().kind(), "run_timeout");
  EXPECT_TRUE(Check({"a", "b", "c"}).verification().ok());
}

TEST_F(NetworkTest, AProgramThatDoesNotBuildIsNamed) {
  const v1::MeasureResult result = Check({"a", "refuse"});
  EXPECT_EQ(result.error().kind(), "compile");
  EXPECT_EQ(result.error().text(), "task doubling: line 7: no such thing");
}

TEST_F(NetworkTest, WhatWasBuiltForOneCheckIsThereForTheNext) {
  EXPECT_TRUE(Check({"a", "b", "c"}).verification().ok());
  EXPECT_EQ(pipeline_->Statistics().builds(), 4u);  // and the reference program
  EXPECT_TRUE(Check({"a", "b", "c"}).verification().ok());
  EXPECT_EQ(pipeline_->Statistics().builds(), 4u);
  EXPECT_TRUE(Check({"a", "d", "c"}).verification().ok());
  EXPECT_EQ(pipeline_->Statistics().builds(), 5u);
}

TEST_F(NetworkTest, ARequestThatContradictsItselfIsRefusedWithTheReason) {
  v1::MeasureRequest no_task = NetworkRequest(1, {"a"});
  no_task.mutable_network()->mutable_plan()->mutable_programs(0)->set_task(3);
  EXPECT_EQ(Check(no_task).error().text(), "a program of the network is of no task");
  v1::MeasureRequest no_schedule = NetworkRequest(1, {"a"});
  no_schedule.mutable_network()->clear_schedules();
  EXPECT_EQ(Check(no_schedule).error().text(), "a network needs programs, and a schedule for each of them");
  v1::MeasureRequest endless = NetworkRequest(1, {"a"});
  endless.mutable_network()->set_replays(1'000'000);
  EXPECT_EQ(Check(endless).error().text(), "a network is run on at most 16 inputs and 100000 times on each");
  v1::MeasureRequest unmade = NetworkRequest(1, {"a", "b"});
  unmade.mutable_network()->mutable_plan()->mutable_steps()->RemoveLast();
  const v1::MeasureResult result = Check(unmade);
  EXPECT_EQ(result.error().kind(), "instantiation");
  EXPECT_EQ(result.error().text(),
            "the reference implementation of the network failed: the network's plan contradicts itself: nothing makes "
            "tensor 't1'");
}

TEST_F(NetworkTest, ANetworkLargerThanTheWorkerTakesIsRefused) {
  pipeline_->Stop();
  PipelineOptions options = FakeOptions(folder_);
  options.limits.tensor_bytes = 3 * 16 * 4;
  Start(options);
  EXPECT_TRUE(Check({"a", "b"}).verification().ok());
  const v1::MeasureResult result = Check({"a", "b", "c"});
  EXPECT_EQ(result.error().kind(), "instantiation");
  EXPECT_THAT(result.error().text(), HasSubstr("start it with a larger --max-tensor-gib"));
}

}  // namespace
}  // namespace diapason
