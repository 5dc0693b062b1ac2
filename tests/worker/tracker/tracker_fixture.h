// A tracker driven by hand: its clock moves when told to, workers and coordinators are a few lines each.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/process/convert.h"
#include "worker/tracker/store.h"
#include "worker/tracker/tracker.h"

namespace diapason {

class TrackerTest : public testing::Test {
 protected:
  TrackerTest() {
    options_.now = [this] { return now_; };
    options_.store_pause = {};
    Restart();
  }
  // As a tracker process that is killed and started again: with a state file it goes on from there.
  void Restart() {
    tracker_.reset();
    std::unique_ptr<TrackerStore> store;
    if (!state_.empty()) {
      auto opened = TrackerStore::Open(state_);
      ASSERT_TRUE(opened.ok()) << opened.status();
      store = *std::move(opened);
    }
    tracker_ = std::make_unique<Tracker>(options_, std::move(store));
    absl::Status restored = tracker_->Restore();
    ASSERT_TRUE(restored.ok()) << restored;
  }

  // In small steps: a long one would be taken for a stall of the tracker.
  void Pass(std::chrono::milliseconds time) {
    for (auto end = now_ + time; now_ < end;) {
      now_ += std::chrono::milliseconds(100);
      tracker_->Tick();
    }
  }

  std::string Open(const std::string& owner) {
    v1::OpenRequest request;
    request.mutable_protocol()->set_high(1);
    v1::OpenResponse response;
    EXPECT_TRUE(tracker_->Open(request, response, owner).ok());
    return response.queue();
  }
  std::string Open(int priority = 0, double weight = 1, std::map<std::string, std::string> labels = {}) {
    v1::OpenRequest request;
    request.mutable_protocol()->set_low(1);
    request.mutable_protocol()->set_high(1);
    request.set_priority(priority);
    request.set_weight(weight);
    request.mutable_labels()->insert(labels.begin(), labels.end());
    v1::OpenResponse response;
    EXPECT_TRUE(tracker_->Open(request, response).ok());
    return response.queue();
  }

  // Of a program of its own: equal ones of several queues are measured once.
  v1::MeasureRequest Measurement(uint64_t id, const std::string& model = "") {
    v1::MeasureRequest request;
    request.set_id(id);
    request.set_workload("w");
    request.set_schedule("s" + std::to_string(next_schedule_++));
    request.set_target("cuda -arch=sm_90");
    request.set_device_model(model);
    return request;
  }

  absl::Status Submit(const std::string& queue, std::vector<v1::MeasureRequest> measurements) {
    v1::SubmitRequest request;
    request.set_queue(queue);
    for (v1::MeasureRequest& m : measurements) *request.add_requests() = std::move(m);
    v1::SubmitResponse response;
    return tracker_->Submit(request, response);
  }
  absl::Status SubmitIds(const std::string& queue, std::vector<uint64_t> ids) {
    std::vector<v1::MeasureRequest> measurements;
    for (uint64_t id : ids) measurements.push_back(Measurement(id));
    return Submit(queue, std::move(measurements));
  }

  v1::RegisterRequest Worker(const std::string& name, const std::string& model = "H200") {
    v1::RegisterRequest request;
    request.mutable_protocol()->set_low(1);
    request.mutable_protocol()->set_high(1);
    request.set_worker_id(name);
    request.set_name(name);
    v1::DeviceDescription& device = *request.add_devices();
    device.set_name("cuda:0");
    device.set_target("cuda");
    ToProto(DefaultFacts(Target::Parse("cuda -arch=sm_90").value()), *device.mutable_facts());
    device.mutable_facts()->set_model(model);
    device.mutable_facts()->set_uuid("uuid of " + name);
    device.set_state(v1::DEVICE_STATE_READY);
    return request;
  }
  std::string Register(const v1::RegisterRequest& request) {
    v1::RegisterResponse response;
    absl::Status status = tracker_->Register(request, response);
    EXPECT_TRUE(status.ok()) << status;
    return response.session();
  }
  std::string Register(const std::string& name) { return Register(Worker(name)); }

  struct Waiting {
    std::optional<absl::Status> status;
    v1::LeaseResponse response;
  };
  // `devices`: each with so much room.
  std::shared_ptr<Waiting> Lease(const std::string& session, uint32_t free, uint64_t received = 0,
                                 uint32_t wait_ms = 20000, const std::vector<std::string>& devices = {"cuda:0"}) {
    v1::LeaseRequest request;
    request.set_session(session);
    request.set_received(received);
    request.set_max_wait_ms(wait_ms);
    for (const std::string& device : devices) {
      v1::DeviceCapacity& capacity = *request.add_capacity();
      capacity.set_device(device);
      capacity.set_free(free);
    }
    auto waiting = std::make_shared<Waiting>();
    tracker_->Lease(request, [waiting](absl::Status status, v1::LeaseResponse response) {
      EXPECT_FALSE(waiting->status.has_value());
      waiting->status = status;
      waiting->response = std::move(response);
    });
    return waiting;
  }
  std::vector<v1::LeaseGrant> Grants(const std::string& session, uint32_t free) {
    auto waiting = Lease(session, free, ~uint64_t{0} >> 1, 0);
    EXPECT_TRUE(waiting->status.has_value());
    return {waiting->response.grants().begin(), waiting->response.grants().end()};
  }
  static std::vector<uint64_t> Ids(const std::vector<v1::LeaseGrant>& grants) {
    std::vector<uint64_t> ids;
    for (const auto& grant : grants) ids.push_back(grant.request().id());
    return ids;
  }

  static v1::MeasureResult Timed(double seconds = 1e-3) {
    v1::MeasureResult result;
    result.mutable_timing()->add_samples(seconds);
    result.mutable_timing()->set_number(1);
    return result;
  }
  v1::ListWorkersResponse Fleet() {
    v1::ListWorkersResponse fleet;
    EXPECT_TRUE(tracker_->ListWorkers({}, fleet).ok());
    return fleet;
  }
  v1::ReportResponse Report(const std::string& session, std::vector<std::pair<uint64_t, v1::MeasureResult>> outcomes,
                            std::vector<uint64_t> renew = {}) {
    v1::ReportRequest request;
    request.set_session(session);
    for (auto& [lease, result] : outcomes) {
      v1::LeaseOutcome& outcome = *request.add_outcomes();
      outcome.set_lease(lease);
      *outcome.mutable_result() = result;
    }
    for (uint64_t lease : renew) request.add_renew(lease);
    v1::ReportResponse response;
    report_status_ = tracker_->Report(request, response);
    return response;
  }
  std::vector<v1::MeasureResult> Results(const std::string& queue, uint64_t acknowledged = 0) {
    v1::NextRequest request;
    request.set_queue(queue);
    request.set_acknowledged(acknowledged);
    std::vector<v1::MeasureResult> results;
    tracker_->Next(request, [&](absl::Status status, v1::NextResponse response) {
      next_status_ = status;
      results = {response.results().begin(), response.results().end()};
    });
    return results;
  }

  TrackerOptions options_;
  std::string state_;  // path of its state file; empty: none
  TrackerOptions::Clock::time_point now_ = TrackerOptions::Clock::now();
  std::unique_ptr<Tracker> tracker_;
  absl::Status report_status_, next_status_;
  uint64_t next_schedule_ = 1;
};

}  // namespace diapason
