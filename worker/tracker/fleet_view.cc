#include "worker/tracker/fleet_view.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/tracker/device_counts.h"

namespace diapason::tracker {
namespace {

// Fewer devices than this of one model have no peers.
constexpr size_t kFewestPeers = 2;

v1::WorkerStatus StatusOf(const Session& session, Clock::time_point now, const References& references) {
  v1::WorkerStatus status = session.status;
  status.set_last_seen_seconds(std::max(0.0, SecondsBetween(session.last_report, now)));
  status.set_leases(static_cast<uint32_t>(session.leases.size()));
  if (session.quarantined_until.has_value()) status.clear_states();
  for (const v1::DeviceDescription& device : session.status.devices()) {
    v1::DeviceRates& rates = *status.add_rates();
    rates = RatesOf(session, device.name());
    rates.set_drift(DriftOf(session, device, references, kFewestPeers));
    rates.set_excluded(session.excluded.contains(device.name()));
    if (!session.quarantined_until.has_value()) continue;
    v1::DeviceStatus& state = *status.add_states();
    state.set_device(device.name());
    state.set_state(v1::DEVICE_STATE_QUARANTINED);
    state.set_text("the tracker: " + session.quarantine_text);
  }
  return status;
}

v1::QueueStatus StatusOf(const Queue& queue) {
  v1::QueueStatus status;
  status.set_name(queue.open.name());
  status.set_priority(queue.priority());
  status.set_weight(queue.weight());
  auto leased = std::count_if(queue.unfinished.begin(), queue.unfinished.end(),
                              [](const auto& entry) { return entry.second->lease != 0 || entry.second->parked; });
  status.set_leased(static_cast<uint32_t>(leased));
  status.set_pending(static_cast<uint32_t>(queue.unfinished.size()) - status.leased());
  status.set_done(queue.done.size());
  return status;
}

}  // namespace

std::map<std::string, v1::ModelStatus> FleetView::Models() const {
  std::map<std::string, v1::ModelStatus> models;
  auto at = [&](const std::string& device_class) -> v1::ModelStatus& {
    v1::ModelStatus& model = models[device_class];
    size_t end = device_class.find('\n');
    model.set_kind(device_class.substr(0, end));
    model.set_model(device_class.substr(end + 1));
    return model;
  };
  for (const auto& [id, session] : workers_.sessions()) {
    for (const v1::DeviceDescription& device : session->status.devices()) {
      v1::ModelStatus& model = at(ClassOf(device.target(), device.facts().model()));
      model.set_total(model.total() + 1);
      auto classes = session->classes.find(device.name());
      bool serves = classes != session->classes.end() && !classes->second.empty();
      bool busy = std::any_of(session->leases.begin(), session->leases.end(),
                              [&](const auto& lease) { return lease.second.device == device.name(); });
      if (serves && !busy) model.set_free(model.free() + 1);
      if (!serves) model.set_quarantined(model.quarantined() + 1);
    }
  }
  for (const auto& [id, queue] : queues_.queues()) {
    for (const auto& [number, request] : queue->unfinished) {
      if (request->lease != 0 || request->parked) continue;
      v1::ModelStatus& model = at(request->device_class);
      model.set_pending(model.pending() + 1);
    }
  }
  return models;
}

// A page's name is the part of the list that it goes on with, and the key of the last element before it.
absl::Status FleetView::List(const std::string& page, size_t most_bytes, v1::ListWorkersResponse& response) const {
  if (!page.empty() && std::strchr("wqm", page[0]) == nullptr)
    return absl::InvalidArgumentError("ListWorkersRequest.page is none that this tracker gave");
  const char part = page.empty() ? 'w' : page[0];
  const std::string last = page.empty() ? "" : page.substr(1);
  size_t bytes = 0;
  const Fits fits = [&](char of, const std::string& key, size_t size) {
    bytes += size;
    if (bytes > most_bytes) response.set_next_page(of + key);
    return bytes <= most_bytes;
  };
  if (part == 'w' && !ListSessions(last, fits, response)) return absl::OkStatus();
  if (part != 'm' && !ListQueues(part == 'q' ? last : "", fits, response)) return absl::OkStatus();
  ListModels(part == 'm' ? last : "", fits, response);
  return absl::OkStatus();
}

bool FleetView::ListSessions(const std::string& last, const Fits& fits, v1::ListWorkersResponse& response) const {
  std::map<std::string, const Session*> sessions;
  for (const auto& [id, session] : workers_.sessions())
    sessions[session->status.name() + '\0' + session->status.worker_id()] = session.get();
  const Clock::time_point now = clock_.Now();
  const References references = ReferenceTimes(workers_.sessions());
  for (auto next = sessions.upper_bound(last); next != sessions.end(); ++next) {
    v1::WorkerStatus& status = *response.add_workers();
    status = StatusOf(*next->second, now, references);
    if (!fits('w', next->first, status.ByteSizeLong())) return false;
  }
  return true;
}

bool FleetView::ListQueues(const std::string& last, const Fits& fits, v1::ListWorkersResponse& response) const {
  std::map<std::string, const Queue*> queues;
  for (const auto& [id, queue] : queues_.queues()) {
    const std::string number = std::to_string(queue->number);
    queues[std::string(20 - number.size(), '0') + number] = queue.get();
  }
  for (auto next = queues.upper_bound(last); next != queues.end(); ++next) {
    v1::QueueStatus& status = *response.add_queues();
    status = StatusOf(*next->second);
    if (!fits('q', next->first, status.ByteSizeLong())) return false;
  }
  return true;
}

bool FleetView::ListModels(const std::string& last, const Fits& fits, v1::ListWorkersResponse& response) const {
  std::map<std::string, v1::ModelStatus> models = Models();
  for (auto next = models.upper_bound(last); next != models.end(); ++next) {
    v1::ModelStatus& status = *response.add_models();
    status = std::move(next->second);
    if (!fits('m', next->first, status.ByteSizeLong())) return false;
  }
  return true;
}

std::vector<Metric> FleetView::Numbers(const v1::ListWorkersResponse& fleet) const {
  double pending = 0, leased = 0;
  for (const v1::QueueStatus& queue : fleet.queues()) {
    pending += queue.pending();
    leased += queue.leased();
  }
  double oldest = 0;
  for (const auto& [id, queue] : queues_.queues())
    for (const auto& [number, request] : queue->unfinished)
      oldest = std::max(oldest, SecondsBetween(request->submitted, clock_.Now()));
  return {
      Metric::Gauge("diapason_tracker_workers", "Workers with a session", fleet.workers_size()),
      Metric::Gauge("diapason_tracker_queues", "Tuners with a queue", fleet.queues_size()),
      Metric::Gauge("diapason_tracker_requests_pending", "Measurements that wait for a device", pending),
      Metric::Gauge("diapason_tracker_requests_leased", "Measurements that a worker has", leased),
      Metric::Gauge("diapason_tracker_oldest_request_seconds", "Age of the oldest measurement without a result",
                    oldest),
      Metric::Gauge("diapason_tracker_stored_bytes", "Requests and results held",
                    static_cast<double>(queues_.stored_bytes())),
      Metric::Counter("diapason_tracker_leases_total", "Leases granted", static_cast<double>(totals_.granted)),
      Metric::Counter("diapason_tracker_leases_expired_total", "Leases that were not renewed",
                      static_cast<double>(totals_.expired)),
      Metric::Counter("diapason_tracker_shared_total",
                      "Measurements that were not run, since another queue's was taken",
                      static_cast<double>(totals_.shared)),
      Metric::Counter("diapason_tracker_bad_outcomes_total", "Answers of workers that can be no outcome",
                      static_cast<double>(totals_.bad_outcomes)),
  };
}

std::vector<Metric> FleetView::Metrics() const {
  v1::ListWorkersResponse fleet;
  List(/*page=*/"", ~size_t{0}, fleet).IgnoreError();  // the first page, of any size
  std::vector<Metric> metrics = Numbers(fleet);
  Metric devices{"diapason_tracker_devices", "Devices by model and state", Metric::Type::kGauge, {}};
  for (const v1::ModelStatus& model : fleet.models()) {
    if (model.total() == 0) continue;
    for (const auto& [state, count] : {std::pair{"free", model.free()},
                                       {"quarantined", model.quarantined()},
                                       {"busy", model.total() - model.free() - model.quarantined()}}) {
      devices.values.push_back(
          {{{"kind", model.kind()}, {"model", model.model()}, {"state", state}}, static_cast<double>(count), {}});
    }
  }
  metrics.push_back(std::move(devices));
  Metric busy{"diapason_tracker_device_utilisation_ratio",
              "Share of the last minute that a device was at work, 0 to 1",
              Metric::Type::kGauge,
              {}};
  for (const v1::WorkerStatus& worker : fleet.workers())
    for (const v1::DeviceRates& rates : worker.rates())
      busy.values.push_back({{{"worker", worker.name()}, {"device", rates.device()}}, rates.utilisation(), {}});
  metrics.push_back(std::move(busy));
  Metric outcomes{"diapason_tracker_outcomes_total", "Measurements by how they ended", Metric::Type::kCounter, {}};
  for (const auto& [kind, count] : totals_.outcomes)
    outcomes.values.push_back({{{"kind", kind}}, static_cast<double>(count), {}});
  metrics.push_back(std::move(outcomes));
  metrics.push_back({"diapason_tracker_stage_seconds",
                     "Time of a measurement in a stage",
                     Metric::Type::kHistogram,
                     {{{{"stage", "queued"}}, 0, totals_.queued},
                      {{{"stage", "build"}}, 0, totals_.build},
                      {{{"stage", "run"}}, 0, totals_.run}}});
  return metrics;
}

}  // namespace diapason::tracker
