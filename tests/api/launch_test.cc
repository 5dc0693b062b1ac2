// Workers that calls of the library start, here with processes of this host.
#include "diapason/launch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "diapason/tuner.h"
#include "tests/paths.h"
#include "worker/tracker/server.h"

namespace diapason::api {
namespace {

LaunchRequest OneHere() {
  LaunchRequest request;
  request.engine = "local";
  request.workers = 1;
  request.worker_args = {"--devices", "cpu", "--builders", "1"};
  request.worker_program = TEST_PATH(DIAPASON_PROGRAM);
  return request;
}

TEST(Launch, WhatDoesNotFitIsNamed) {
  EXPECT_TRUE(CheckOptions(LaunchRequest()).ok()) << "no engine";
  EXPECT_TRUE(CheckOptions(OneHere()).ok()) << CheckOptions(OneHere());
  const auto refused = [](const std::function<void(LaunchRequest&)>& change) {
    LaunchRequest request = OneHere();
    change(request);
    return std::string(CheckOptions(request).message());
  };
  EXPECT_EQ(refused([](LaunchRequest& r) { r.workers = 0; }), "--launch needs the number of workers; give --workers");
  EXPECT_EQ(refused([](LaunchRequest& r) { r.min_workers = 2; }), "--min-workers 2 is more than --workers 1");
  EXPECT_EQ(refused([](LaunchRequest& r) {
              r.slurm_args = {"-p", "gpu"};
            }),
            "--slurm-args goes with --launch slurm only");
  EXPECT_EQ(refused([](LaunchRequest& r) { r.engine = "lsf"; }),
            "--launch lsf is not understood; give local, slurm or kubernetes");
  EXPECT_EQ(refused([](LaunchRequest& r) {
              r.worker_args = {"--builders", "1"};
            }),
            "--worker-args is to name the devices to measure on, for example --worker-args \"--devices cuda:*\"");
}

class LaunchingTuner : public testing::Test {
 protected:
  void SetUp() override {
    SetProgram(TEST_PATH(DIAPASON_PROGRAM));
    std::string name = testing::TempDir() + "/diapason_launch_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
    ASSERT_TRUE(tracker.ok()) << tracker.status();
    tracker_ = *std::move(tracker);
    options_.model.source = "gemm";
    options_.model.options = {{"m", "32"}, {"n", "48"}, {"k", "64"}};
    options_.target = "cpu -num-cores=1";
    options_.history = folder_ / "h.db";
    options_.trials = 2;
    options_.min_repeat_ms = 1;
    options_.check = false;
    options_.fleet.tracker.address = tracker_->address();
    options_.fleet.launch = OneHere();
  }
  void TearDown() override {
    tracker_ = nullptr;
    std::error_code vanished;
    std::filesystem::remove_all(folder_, vanished);
  }

  std::filesystem::path folder_;
  std::unique_ptr<TrackerServer> tracker_;
  TuneOptions options_;
};

TEST_F(LaunchingTuner, BringsItsWorkers) {
  const absl::StatusOr<TuneResult> tuned = Tune(options_);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_TRUE(tuned->check_status.ok()) << tuned->check_status;
  EXPECT_FALSE(tuned->cancelled);
  EXPECT_EQ(tuned->progress.measured, 2);
}

TEST_F(LaunchingTuner, EndsWithTheLastOfThem) {
  options_.fleet.launch.worker_args = {"--devices", "nothing"};
  options_.fleet.launch.max_replaced = 0;
  options_.fleet.wait_seconds = 3600;
  const absl::Status lost = Tune(options_).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lost.message(),
            "no worker is left: all that were launched are lost, and --max-replaced 0 allows no more; see in their "
            "output what ends them, all trials are in " +
                options_.history + ", the same command resumes there");
}

TEST_F(LaunchingTuner, IsStoppedByItsCallerWhileItWaits) {
  std::atomic<bool> stop{false};
  options_.fleet.launch.worker_args = {"--devices", "cuda:7"};
  options_.fleet.launch.worker_program = "/bin/cat";  // a worker that never comes
  options_.fleet.launch.max_replaced = 1000;
  options_.fleet.wait_seconds = 3600;
  options_.hooks.stop = &stop;
  options_.on_start = [&] {
    stop = true;
    return absl::OkStatus();
  };
  EXPECT_EQ(Tune(options_).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(LaunchingTuner, NeedsATracker) {
  options_.fleet.tracker.address.clear();
  EXPECT_EQ(Tune(options_).status().message(), "--launch starts workers of a fleet; name its tracker with --tracker");
}

}  // namespace
}  // namespace diapason::api
