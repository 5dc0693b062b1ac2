#include "cli/waiting.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

api::FleetStatus::Device DeviceOf(const std::string& target, const std::string& model,
                                  const std::string& state = "ready") {
  api::FleetStatus::Device device;
  device.worker = "w1";
  device.name = target.substr(0, target.find(' '));
  device.target = target;
  device.model = model;
  device.state = state;
  return device;
}

api::FleetStatus FleetOf(std::vector<api::FleetStatus::Device> devices) {
  api::FleetStatus fleet;
  fleet.devices = std::move(devices);
  return fleet;
}

WaitingJob CudaJob() {
  WaitingJob job;
  job.target = "cuda -arch=sm_90";
  job.tracker = "host:9190";
  return job;
}

TEST(WhyWaiting, SaysWhichDeviceIsMissingAndHowToStartIt) {
  WaitingJob job = CudaJob();
  EXPECT_EQ(WhyWaiting(job, FleetOf({DeviceOf("cpu -num-cores=2", "AMD EPYC")})),
            "no cuda device is registered; start one with `diapason worker --tracker host:9190 --devices 'cuda:*'`");
  job.target = "cpu";
  job.labels = {{"rack", "a"}, {"room", "2"}};
  EXPECT_EQ(WhyWaiting(job, FleetOf({})),
            "no cpu device is registered; start one with `diapason worker --tracker host:9190 --devices cpu --labels "
            "rack=a,room=2`");
  EXPECT_EQ(WhyWaiting(job, FleetOf({DeviceOf("cpu", "AMD EPYC")})),
            "no cpu device of a worker with the labels rack=a,room=2 is registered; start one with `diapason worker "
            "--tracker host:9190 --devices cpu "
            "--labels rack=a,room=2`");
}

TEST(WhyWaiting, NamesTheModelsThatThereAre) {
  WaitingJob job = CudaJob();
  job.device = "NVIDIA H200";
  EXPECT_EQ(WhyWaiting(job, FleetOf({DeviceOf("cuda", "NVIDIA L4"), DeviceOf("cuda", "NVIDIA A100")})),
            "no cuda device 'NVIDIA H200' is registered, which --device asks for; there is 'NVIDIA A100', 'NVIDIA L4'");
}

TEST(WhyWaiting, SaysWhyADeviceDoesNotMeasure) {
  WaitingJob job = CudaJob();
  api::FleetStatus fleet = FleetOf({DeviceOf("cuda", "NVIDIA H200", "quarantined")});
  fleet.devices[0].reason = "it failed 5 times";
  EXPECT_EQ(WhyWaiting(job, fleet),
            "cuda of worker w1 is quarantined (it failed 5 times); see `diapason fleet status`");
  fleet.devices[0].state = "ready";
  fleet.devices[0].excluded = true;
  fleet.devices[0].drift = 1.5;
  EXPECT_EQ(WhyWaiting(job, fleet),
            "cuda of worker w1 is excluded, since its reference kernel takes 1.500 times as long as its peers'; see "
            "`diapason fleet status`");
  fleet.devices.push_back(DeviceOf("cuda", "NVIDIA H200"));
  EXPECT_EQ(WhyWaiting(job, fleet), std::nullopt) << "one is enough";
}

TEST(WhyWaiting, SaysBehindWhomAJobIsQueued) {
  WaitingJob job = CudaJob();
  job.queued = true;
  job.running_jobs = 4;
  EXPECT_EQ(WhyWaiting(job, std::nullopt),
            "the job waits for its turn behind 4 jobs that run; `diapason jobs list` shows them");
  job.running_jobs = 0;
  EXPECT_EQ(WhyWaiting(job, std::nullopt), std::nullopt) << "nothing is known";
}

}  // namespace
}  // namespace diapason
