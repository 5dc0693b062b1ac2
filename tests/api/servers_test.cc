// Trackers, workers, services and pages, each on a thread of its own until it is stopped.
#include "diapason/servers.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "diapason/fleet.h"
#include "diapason/history.h"
#include "diapason/service.h"
#include "service/job_manager.h"
#include "tests/paths.h"
#include "worker/process/limits.h"
#include "worker/tracker/options.h"

namespace diapason::api {
namespace {

constexpr std::chrono::seconds kPatience{60};

Endpoint At(const std::string& address) {
  Endpoint endpoint;
  endpoint.address = address;
  return endpoint;
}

ListenOptions Here() {
  ListenOptions listen;
  listen.address = "127.0.0.1:0";
  return listen;
}

// A call that runs until it is stopped.
class Running {
 public:
  // `call` gets the flag that stops it, and what to call when it has begun, with a text to remember.
  using Call = std::function<absl::Status(const std::atomic<bool>* stop, std::function<void(std::string)> begun)>;
  explicit Running(Call call) {
    ended_ = std::async(std::launch::async, [this, call = std::move(call)] {
      const absl::Status status = call(&stop_, [this](std::string text) { begun_.set_value(std::move(text)); });
      if (!status.ok()) ADD_FAILURE() << status;
      return status;
    });
  }
  ~Running() { stop_ = true; }
  // What it said when it began.
  std::string Text() {
    std::future<std::string> text = begun_.get_future();
    if (text.wait_for(kPatience) == std::future_status::ready) return text.get();
    ADD_FAILURE() << "it did not begin";
    return "";
  }
  absl::Status Stop() {
    stop_ = true;
    return ended_.get();
  }

 private:
  std::atomic<bool> stop_{false};
  std::promise<std::string> begun_;
  std::future<absl::Status> ended_;  // waits for the call
};

std::unique_ptr<Running> StartTracker() {
  return std::make_unique<Running>([](const std::atomic<bool>* stop, std::function<void(std::string)> begun) {
    TrackerOptions options;
    options.listen = Here();
    options.on_listen = begun;
    options.hooks.stop = stop;
    return RunTracker(options);
  });
}

class Servers : public testing::Test {
 protected:
  void SetUp() override {
    SetProgram(TEST_PATH(DIAPASON_PROGRAM));
    std::string name = testing::TempDir() + "/diapason_servers_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(Servers, AWorkerMeasuresForATracker) {
  const auto tracker = StartTracker();
  const std::string address = tracker->Text();
  Running worker([&](const std::atomic<bool>* stop, std::function<void(std::string)> begun) {
    WorkerOptions options;
    options.tracker = At(address);
    options.devices = "cpu";
    options.name = "w1";
    options.labels = {{"rack", "a"}};
    options.builders = 1;
    options.scratch = folder_;
    options.on_start = [&](const std::vector<std::string>& devices) { begun(devices.at(0)); };
    options.hooks.stop = stop;
    return RunWorker(options);
  });
  EXPECT_EQ(worker.Text().substr(0, 7), "cpu:0 (");
  FleetStatus fleet;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (fleet.devices.empty() && std::chrono::steady_clock::now() < until) {
    const absl::StatusOr<FleetStatus> status = AskFleet(At(address));
    ASSERT_TRUE(status.ok()) << status.status();
    fleet = *status;
  }
  ASSERT_EQ(fleet.devices.size(), 1u);
  EXPECT_EQ(fleet.devices[0].worker, "w1");
  EXPECT_EQ(fleet.devices[0].labels.at("rack"), "a");
  EXPECT_TRUE(worker.Stop().ok());
  EXPECT_TRUE(tracker->Stop().ok());
  EXPECT_FALSE(CheckHealth(At(address), 1).ok()) << "it listens no more";
}

TEST_F(Servers, AServiceHasAPage) {
  std::string page;
  Running service([&](const std::atomic<bool>* stop, std::function<void(std::string)> begun) {
    ServeOptions options;
    options.listen = Here();
    options.history = folder_ / "h.db";
    options.http = "127.0.0.1:0";
    options.on_listen = [&](const std::string& address, const std::string& url) {
      page = url;
      begun(address);
    };
    options.hooks.stop = stop;
    return Serve(options);
  });
  const std::string address = service.Text();
  EXPECT_EQ(page.substr(0, 17), "http://127.0.0.1:");
  const auto client = Service::Connect(At(address));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->tracker(), address) << "it has one of its own";
  const absl::StatusOr<FleetStatus> fleet = (*client)->Fleet();
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_TRUE(fleet->devices.empty());
  EXPECT_TRUE(service.Stop().ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "h.db"));
}

TEST_F(Servers, AHistoryIsShownAsAPage) {
  PageOptions none;
  none.history = folder_ / "none.db";
  none.http = Here();
  EXPECT_EQ(ServePages(none).code(), absl::StatusCode::kNotFound);
  std::stringstream empty;
  ASSERT_TRUE(ImportHistory(folder_ / "h.db", empty, "nothing").ok());
  Running page([&](const std::atomic<bool>* stop, std::function<void(std::string)> begun) {
    PageOptions options;
    options.history = folder_ / "h.db";
    options.http = Here();
    options.on_listen = begun;
    options.hooks.stop = stop;
    return ServePages(options);
  });
  EXPECT_EQ(page.Text().substr(0, 17), "http://127.0.0.1:");
  EXPECT_TRUE(page.Stop().ok());
}

TEST_F(Servers, WhatIsWrongIsNamed) {
  TrackerOptions tracker;
  tracker.listen = Here();
  tracker.session_seconds = 1;
  EXPECT_EQ(RunTracker(tracker).message(),
            "--heartbeat 1, --session 1 and --lease 15 do not fit each other: a session is to last more than two "
            "heartbeats, and a lease no less than a session");
  tracker = {};
  tracker.listen = Here();
  tracker.quotas.queues = 5000;
  EXPECT_EQ(RunTracker(tracker).message(), "the quota of queues is 5000; give a number from 0 to 1024");
  tracker.listen.address = "0.0.0.0:0";
  EXPECT_EQ(RunTracker(tracker).code(), absl::StatusCode::kPermissionDenied);

  WorkerOptions worker;
  worker.tracker = At("127.0.0.1:1");
  worker.devices = "toaster";
  EXPECT_EQ(RunWorker(worker).message(),
            "--devices toaster is not understood; give names such as cpu, opencl:0, cuda:0 or cuda:*, with commas "
            "between them");
  worker.sandbox = "maybe";
  EXPECT_EQ(RunWorker(worker).message(), "sandbox is 'maybe'; give auto, on or off");

  ServeOptions service;
  service.listen = Here();
  service.history = folder_ / "h.db";
  service.max_running_jobs = 0;
  EXPECT_EQ(Serve(service).message(), "max_running_jobs is 0; give a number from 1 to 64");
  service.max_running_jobs = 1;
  service.tracker = At("127.0.0.1:1");
  service.state = folder_ / "state";
  EXPECT_EQ(Serve(service).message(), "--state is for the service's own tracker; with --tracker there is none");

  PageOptions page;
  page.http.address = "10.0.0.1:0";
  EXPECT_EQ(ServePages(page).code(), absl::StatusCode::kPermissionDenied) << "needs tokens";
  EXPECT_EQ(SetLogLevel("loud").message(), "the log level is 'loud'; give none, error, warning, info or debug");
  EXPECT_TRUE(SetLogLevel("none").ok());
}

// The numbers of the public header are those that hold inside.
TEST(ServerDefaults, AreThoseOfTheParts) {
  const ::diapason::TrackerOptions inside;
  const TrackerOptions tracker;
  EXPECT_EQ(tracker.heartbeat_seconds * 1000, static_cast<double>(inside.heartbeat.count()));
  EXPECT_EQ(tracker.session_seconds * 1000, static_cast<double>(inside.session.count()));
  EXPECT_EQ(tracker.lease_seconds * 1000, static_cast<double>(inside.lease.count()));
  EXPECT_EQ(tracker.queue_expiry_seconds * 1000, static_cast<double>(inside.queue_expiry.count()));
  EXPECT_EQ(tracker.max_pending, inside.max_pending);
  EXPECT_EQ(kDefaultTokenQuotas.queues, inside.max_queues_per_token);
  EXPECT_EQ(kDefaultTokenQuotas.pending, inside.max_pending_per_token);
  EXPECT_EQ(kDefaultTokenQuotas.stored_mib, static_cast<int64_t>(inside.max_stored_bytes_per_token >> 20));
  EXPECT_EQ(kLargestTokenQuotas.queues, inside.max_queues);
  EXPECT_EQ(kLargestTokenQuotas.stored_mib, static_cast<int64_t>(inside.max_stored_bytes >> 20));
  const RequestLimits requests;
  const WorkerLimits limits;
  EXPECT_EQ(limits.request_mib << 20, requests.bytes);
  EXPECT_EQ(limits.nodes, requests.nodes);
  EXPECT_EQ(limits.steps, requests.steps);
  EXPECT_EQ(limits.iterations, requests.iterations);
  EXPECT_EQ(limits.tensor_gib, static_cast<double>(requests.tensor_bytes >> 30));
  const JobManagerOptions jobs;
  const ServeOptions service;
  EXPECT_EQ(service.max_running_jobs, jobs.running);
  EXPECT_EQ(service.max_queued_jobs, jobs.unfinished);
  EXPECT_EQ(service.max_unfinished_jobs_per_token, jobs.unfinished_per_token);
  EXPECT_EQ(service.max_models, jobs.models.models);
  EXPECT_EQ(service.max_models_gib, static_cast<double>(jobs.models.bytes >> 30));
  EXPECT_EQ(service.import_seconds, jobs.import.seconds);
}

}  // namespace
}  // namespace diapason::api
