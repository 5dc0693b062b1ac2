// Builder processes: what they build, and what becomes of what they do not.
#include "worker/pipeline/builders.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/testing.h"
#include "worker/process/convert.h"
#include "worker/process/scratch.h"

namespace diapason::pipeline {
namespace {

class BuildersTest : public testing::Test {
 protected:
  ~BuildersTest() override { builders_.Clear(); }
  std::unique_ptr<ProcessSlot> Slot(const std::vector<std::string>& args) {
    SlotOptions slot;
    slot.name = "slot";
    slot.program = options_.program_path;
    slot.args = args;
    return std::make_unique<ProcessSlot>(slot, Sandbox::None(""), *scratch_);
  }
  static v1::DeviceFacts Facts() {
    v1::DeviceFacts facts;
    ToProto(DefaultFacts(Target::Parse("cpu").value()), facts);
    return facts;
  }
  // One candidate is built by one builder; its result if it fails.
  std::vector<JobPtr> Build(const std::vector<std::string>& args, const std::string& words) {
    builders_.Add(Slot(args));
    auto job = std::make_shared<Job>();
    job->target = "cpu";
    job->request = FakeRequest(1, words);
    jobs_.Add(job);
    builds_.Add(job);
    std::vector<JobPtr> answers;
    for (auto start = std::chrono::steady_clock::now(); !built_ && answers.empty() && SecondsSince(start) < 60;) {
      const Instant now = std::chrono::steady_clock::now();
      builders_.Advance(now);
      builders_.Begin(now);
      answers = jobs_.TakeAnswers();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return answers;
  }
  const TemporaryFolder folder_;
  const PipelineOptions options_ = FakeOptions(folder_);
  const std::unique_ptr<ScratchFolder> scratch_ = ScratchFolder::Create(folder_.path()).value();
  const std::vector<v1::DeviceDescription> devices_{1};
  const v1::DeviceFacts facts_ = Facts();
  v1::WorkerStatistics counts_;
  bool built_ = false;
  Jobs jobs_{devices_, [](const JobPtr&) {}};
  Builds builds_{options_, jobs_, counts_, [this](int) -> const v1::DeviceFacts& { return facts_; },
                 [this](const JobPtr& job) { built_ = job->built(); }};
  Builders builders_{options_, builds_, counts_};
};

TEST_F(BuildersTest, ACandidateIsBuilt) {
  EXPECT_TRUE(Build(options_.builder_args, "").empty());
  EXPECT_TRUE(built_);
  EXPECT_EQ(counts_.builds(), 1u);
  v1::WorkerStatistics statistics;
  builders_.AddTo(statistics);
  EXPECT_EQ(statistics.builders(), 1u);
  EXPECT_GT(statistics.builder_busy_seconds(), 0);
}

TEST_F(BuildersTest, ACrashIsTheCandidates) {
  const std::vector<JobPtr> answers = Build(options_.builder_args, "crash");
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0]->result.error().kind(), "build_crash");
  EXPECT_EQ(counts_.failed_builds(), 1u);
}

}  // namespace
}  // namespace diapason::pipeline
