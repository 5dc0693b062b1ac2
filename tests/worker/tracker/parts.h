// The parts of a tracker, put together as the tracker does, with a clock that moves when told to and no store.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/process/convert.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/device_counts.h"
#include "worker/tracker/fleet_view.h"
#include "worker/tracker/groups.h"
#include "worker/tracker/journal.h"
#include "worker/tracker/leases.h"
#include "worker/tracker/lines.h"
#include "worker/tracker/quarantines.h"
#include "worker/tracker/queue_table.h"
#include "worker/tracker/recent_outcomes.h"
#include "worker/tracker/restore.h"
#include "worker/tracker/trials.h"
#include "worker/tracker/worker_table.h"
#include "worker/tracker/worker_watch.h"

namespace diapason::tracker {

class PartsTest : public testing::Test {
 protected:
  static constexpr char kClass[] = "cuda\nH200";

  TrackerOptions Options() {
    TrackerOptions options;
    options.now = [this] { return now_; };
    options.stall = std::chrono::hours(1);
    return options;
  }

  Queue& AddQueue(const std::string& id, int priority = 0, double weight = 1) {
    v1::OpenRequest open;
    open.set_name(id);
    open.set_priority(priority);
    open.set_weight(weight);
    return queues_.Add(id, open);
  }
  // Equal ones of several queues are the same measurement.
  RequestPtr AddRequest(Queue& queue, uint64_t id, const std::string& schedule = "s") {
    v1::MeasureRequest message;
    message.set_id(id);
    message.set_workload("w");
    message.set_schedule(schedule);
    message.set_target("cuda");
    message.set_device_model("H200");
    return queues_.AddRequest(queue, message, /*submitted_at=*/0);
  }
  // One that waits in its line.
  RequestPtr Submit(Queue& queue, uint64_t id, const std::string& schedule = "s") {
    RequestPtr request = AddRequest(queue, id, schedule);
    trials_.Begin(request);
    return request;
  }
  static v1::RegisterRequest Worker(const std::string& name) {
    v1::RegisterRequest request;
    request.set_worker_id(name);
    request.set_name(name);
    v1::DeviceDescription& device = *request.add_devices();
    device.set_name("cuda:0");
    device.set_target("cuda");
    ToProto(DefaultFacts(Target::Parse("cuda -arch=sm_90").value()), *device.mutable_facts());
    device.mutable_facts()->set_model("H200");
    device.mutable_facts()->set_uuid("uuid of " + name);
    device.set_state(v1::DEVICE_STATE_READY);
    return request;
  }
  Session& AddSession(const std::string& name) { return workers_.Add(name, Worker(name), /*fault=*/nullptr); }
  // The worker asks for so much; what it has been granted then.
  std::vector<v1::LeaseGrant> Grants(Session& session, uint32_t free) {
    v1::LeaseRequest request;
    request.set_received(session.batch);
    v1::DeviceCapacity& capacity = *request.add_capacity();
    capacity.set_device("cuda:0");
    capacity.set_free(free);
    v1::LeaseResponse granted;
    leases_.Wait(session, request, [&](const absl::Status&, v1::LeaseResponse answer) { granted = std::move(answer); });
    EndTurn();
    return {granted.grants().begin(), granted.grants().end()};
  }
  void EndTurn() {
    for (const auto& answer : journal_.EndTurn()) answer();
  }
  static v1::MeasureResult Timed(double seconds = 1e-3) {
    v1::MeasureResult result;
    result.mutable_timing()->add_samples(seconds);
    result.mutable_timing()->set_number(1);
    return result;
  }
  static v1::DeviceStatistics Statistics(uint64_t runs, double busy_seconds, double reference_seconds = 0) {
    v1::DeviceStatistics total;
    total.set_device("cuda:0");
    total.set_runs(runs);
    total.set_busy_seconds(busy_seconds);
    total.set_reference_seconds(reference_seconds);
    return total;
  }

  Clock::time_point now_ = Clock::now();
  TrackerOptions options_ = Options();
  AwakeClock clock_{options_};
  Journal journal_{nullptr, {}};
  Totals totals_;
  QueueTable queues_{options_, clock_, journal_, /*incarnation=*/7};
  Lines lines_{queues_.queues()};
  WorkerTable workers_{clock_};
  Quarantines quarantines_{options_};
  Groups groups_{lines_, journal_};
  RecentOutcomes recent_{options_, clock_};
  Leases leases_{{options_, clock_, journal_, workers_, lines_, groups_, totals_}, /*first=*/100};
  Trials trials_{{journal_, queues_, workers_, lines_, groups_, recent_, leases_, totals_}};
  WorkerWatch watch_{{clock_, journal_, workers_, quarantines_, recent_, leases_, trials_, totals_}};
  DriftWatch drift_{options_, workers_};
  FleetView view_{clock_, queues_, workers_, totals_};
};

}  // namespace diapason::tracker
