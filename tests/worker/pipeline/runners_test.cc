// Runner processes: what they start with, and what runs where.
#include "worker/pipeline/runners.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/testing.h"
#include "worker/process/scratch.h"

namespace diapason::pipeline {
namespace {

class RunnersTest : public testing::Test {
 protected:
  RunnersTest() {
    std::vector<std::string> args = options_.runner_args;
    args.push_back("cpu");
    runners_.Add(Slot(args), Target::Parse("cpu").value(), "cpu:0");
  }
  ~RunnersTest() override { runners_.Clear(); }
  std::unique_ptr<ProcessSlot> Slot(const std::vector<std::string>& args) {
    SlotOptions slot;
    slot.name = "slot";
    slot.program = options_.program_path;
    slot.args = args;
    return std::make_unique<ProcessSlot>(slot, Sandbox::None(""), *scratch_);
  }
  void AdvanceUntil(const std::function<bool()>& done) {
    for (auto start = std::chrono::steady_clock::now(); !done() && SecondsSince(start) < 60;) {
      const Instant now = std::chrono::steady_clock::now();
      runners_.Advance(now);
      runners_.Begin(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const TemporaryFolder folder_;
  const PipelineOptions options_ = FakeOptions(folder_);
  const std::unique_ptr<ScratchFolder> scratch_ = ScratchFolder::Create(folder_.path()).value();
  const std::vector<v1::DeviceDescription> devices_{1};
  v1::WorkerStatistics counts_;
  Jobs jobs_{devices_, [](const JobPtr&) {}};
  Runners runners_{options_, jobs_, counts_, {[](bool, Instant) {}, [](const JobPtr&) {}}};
};

TEST_F(RunnersTest, ADeviceTellsItsFactsWhenItIsReady) {
  EXPECT_EQ(runners_.Started(), std::nullopt);
  AdvanceUntil([this] { return runners_.Started().has_value(); });
  ASSERT_TRUE(runners_.Started().has_value());
  EXPECT_TRUE(runners_.Started()->ok());
  EXPECT_EQ(runners_.description(0).facts().model(), "Fake 3000");
  EXPECT_EQ(runners_.States().at(0).state(), v1::DEVICE_STATE_READY);
}

TEST_F(RunnersTest, AProgramThatIsNoneIsAnErrorOfItsJob) {
  AdvanceUntil([this] { return runners_.Started().has_value(); });
  const auto job = std::make_shared<Job>();
  job->target = job->shared_target = "cpu";
  job->request = FakeRequest(1, "");
  jobs_.Add(job);
  runners_.TakeBuilt(job);  // it is not built yet
  v1::WorkerStatistics statistics;
  runners_.AddTo(statistics);
  EXPECT_EQ(statistics.waiting_for_runner(), 0u);
  job->program = std::make_shared<const std::string>("nonsense");
  runners_.TakeBuilt(job);
  std::vector<JobPtr> answers;
  AdvanceUntil([&] {
    answers = jobs_.TakeAnswers();
    return !answers.empty();
  });
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0]->result.has_error());
  EXPECT_EQ(counts_.runs(), 1u);
  EXPECT_EQ(counts_.failed_runs(), 1u);
  EXPECT_EQ(runners_.Counts().at(0).runs(), 1u);
}

}  // namespace
}  // namespace diapason::pipeline
