// Devices that fall sick: probes, quarantine and the way back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "diapason/v1/tracker.pb.h"
#include "tests/worker/testing.h"
#include "worker/agent/agent.h"
#include "worker/client.h"
#include "worker/fleet_status.h"
#include "worker/pipeline/pipeline.h"
#include "worker/tracker/server.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    options_ = FakeOptions(folder_);
    options_.builders = 1;
    options_.devices = {"opencl -device=6"};  // the one that can be made sick
    options_.run_timeout_seconds = 0.5;
    options_.probe_timeout_seconds = 10;
    options_.first_probe_again_seconds = 0.3;
    setenv("DIAPASON_FAKE_SICK", sick_.c_str(), 1);
  }
  void SetUp() override {
    auto pipeline = Pipeline::Start(options_);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
  }
  void TearDown() override {
    if (pipeline_ != nullptr) pipeline_->Stop();
    unsetenv("DIAPASON_FAKE_SICK");
    std::filesystem::remove(sick_);
  }
  void FallSick() { std::ofstream(sick_) << "sick"; }
  void Recover() { std::filesystem::remove(sick_); }
  v1::MeasureResult Measure(const std::string& words) {
    uint64_t id = next_id_++;
    v1::MeasureRequest request = FakeRequest(id, words);
    request.set_target("opencl");
    pipeline_->Submit(0, request, box_.Taker());
    return box_.Wait(id);
  }
  v1::DeviceStatus State() { return pipeline_->DeviceStates()[0]; }
  bool Becomes(v1::DeviceState state, double seconds = 20) {
    for (auto began = std::chrono::steady_clock::now(); SecondsSince(began) < seconds;) {
      if (State().state() == state) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  TemporaryFolder folder_;
  std::string sick_ = testing::TempDir() + "sick-" + std::to_string(getpid());
  PipelineOptions options_;
  ResultBox box_;
  std::unique_ptr<Pipeline> pipeline_;
  uint64_t next_id_ = 1;
};

TEST_F(HealthTest, AHungKernelLeavesAHealthyDeviceInUse) {
  EXPECT_EQ(Measure("kernel=hang").error().kind(), "run_timeout");
  EXPECT_TRUE(Measure("").has_timing());
  EXPECT_TRUE(Becomes(v1::DEVICE_STATE_READY));
  EXPECT_EQ(State().text(), "");
  EXPECT_GE(pipeline_->DeviceCounts()[0].runs(), 3u);  // a probe among them
}

TEST_F(HealthTest, TwoFailedProbesAreAQuarantineThatEndsWithAGoodOne) {
  FallSick();
  // The kernel's own fault; the device stays sick behind it.
  EXPECT_EQ(Measure("kernel=hang").error().kind(), "run_timeout");
  v1::MeasureResult lost = Measure("");
  EXPECT_EQ(lost.error().kind(), "infrastructure");
  EXPECT_FALSE(lost.runner_lost());
  EXPECT_THAT(lost.error().text(), HasSubstr("a health probe failed (illegal_access): "));
  ASSERT_TRUE(Becomes(v1::DEVICE_STATE_QUARANTINED));
  EXPECT_EQ(State().text(), lost.error().text());
  EXPECT_EQ(Measure("").error().kind(), "infrastructure");  // at once
  Recover();
  ASSERT_TRUE(Becomes(v1::DEVICE_STATE_READY));
  EXPECT_TRUE(Measure("").has_timing());
}

// By agent and tracker: what `fleet status` shows.
TEST_F(HealthTest, AQuarantineAndItsEndReachTheFleetsStatus) {
  pipeline_.reset();
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok()) << tracker.status();
  AgentOptions options;
  options.tracker = (*tracker)->address();
  options.worker_id = options.name = "a";
  options.pipeline = options_;
  auto agent = WorkerAgent::Start(std::move(options));
  ASSERT_TRUE(agent.ok()) << agent.status();
  auto client = MeasureClient::Connect((*tracker)->address());
  ASSERT_TRUE(client.ok()) << client.status();
  FleetStatus::Device device;
  auto becomes = [&](const std::string& state) {
    for (auto began = std::chrono::steady_clock::now(); SecondsSince(began) < 20;) {
      const absl::StatusOr<FleetStatus> status = AskFleetStatus((*tracker)->address(), 5);
      if (status.ok() && !status->devices.empty()) device = status->devices[0];
      if (device.state == state) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  };
  ASSERT_TRUE(becomes("ready"));
  FallSick();
  Measurement hangs;
  hangs.id = 1;
  hangs.workload = std::make_shared<const std::string>(SerializeDag(DoublingDag()));
  hangs.schedule = FakeSchedule("kernel=hang");
  hangs.target = "opencl";
  hangs.run_timeout_s = 0.5;
  ASSERT_TRUE((*client)->Submit({hangs}).ok());
  ASSERT_TRUE(becomes("quarantined"));
  EXPECT_THAT(device.why, HasSubstr("a health probe failed (illegal_access): "));
  Recover();
  ASSERT_TRUE(becomes("ready"));
  EXPECT_EQ(device.why, "");
  client->reset();
  (*agent)->Stop();
}

TEST_F(HealthTest, ARunnerThatIsStoppedIsAFaultOfTheInfrastructure) {
  uint64_t id = next_id_++;
  v1::MeasureRequest request = FakeRequest(id, "kernel=hang");
  request.set_target("opencl");
  pipeline_->Submit(0, request, box_.Taker());
  // The builder answers first: what is stopped later is the runner at work.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (const std::string& child : Children()) kill(std::atoi(child.c_str()), SIGSTOP);
  v1::MeasureResult result = box_.Wait(id);
  for (const std::string& child : Children()) kill(std::atoi(child.c_str()), SIGCONT);
  EXPECT_EQ(result.error().kind(), "infrastructure");
  EXPECT_EQ(result.error().text(), "runner: the process was stopped from outside");
  EXPECT_TRUE(result.runner_lost());
  EXPECT_TRUE(Measure("").has_timing());
}

class ReferenceTest : public HealthTest {
 protected:
  ReferenceTest() { options_.reference_interval_seconds = 0.05; }
};

TEST_F(ReferenceTest, TheReferenceKernelIsTimedNowAndThen) {
  auto began = std::chrono::steady_clock::now();
  while (pipeline_->DeviceCounts()[0].runs() < 2 && SecondsSince(began) < 20)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(pipeline_->DeviceCounts()[0].runs(), 2u);
  EXPECT_DOUBLE_EQ(pipeline_->DeviceCounts()[0].reference_seconds(), 1e-4);
  EXPECT_TRUE(Measure("").has_timing());
}

}  // namespace
}  // namespace diapason
