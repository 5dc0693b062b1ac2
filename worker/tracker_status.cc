// What the tracker tells people of its workers, devices and queues.
#include <algorithm>
#include <cstring>

#include "worker/log.h"
#include "worker/tracker_impl.h"

namespace diapason {
namespace {

constexpr std::chrono::seconds kWindow{60};
constexpr std::chrono::seconds kCountsEvery{5};
// Fewer devices than this of one model cannot outvote one that is wrong.
constexpr size_t kFewestPeers = 2;
constexpr size_t kFewestToExclude = 3;
constexpr std::chrono::seconds kExcludeEvery{1};

}  // namespace

void Tracker::Impl::NoteCounts(Session& session, const v1::DeviceStatistics& total) {
  std::deque<Counts>& counts = session.counts[total.device()];
  Clock::time_point now = Now();
  // The newest is always there; those before it are some seconds apart.
  if (counts.size() >= 2 && counts.back().at - counts[counts.size() - 2].at < kCountsEvery) counts.pop_back();
  counts.push_back({now, total});
  while (counts.size() > 2 && now - counts[1].at > kWindow) counts.pop_front();
}

v1::DeviceRates Tracker::Impl::RatesOf(const Session& session, const std::string& device) const {
  v1::DeviceRates rates;
  rates.set_device(device);
  auto leases = std::count_if(session.leases.begin(), session.leases.end(),
                              [&](const auto& lease) { return lease.second.device == device; });
  rates.set_leases(static_cast<uint32_t>(leases));
  auto found = session.counts.find(device);
  if (found == session.counts.end()) return rates;
  const v1::DeviceStatistics &last = found->second.back().total, &first = found->second.front().total;
  rates.set_runs(last.runs());
  if (last.runs() > 0) rates.set_error_rate(static_cast<double>(last.failed_runs()) / static_cast<double>(last.runs()));
  double seconds = SecondsBetween(found->second.front().at, found->second.back().at);
  if (seconds <= 0 || last.runs() < first.runs()) return rates;
  auto runs = static_cast<double>(last.runs() - first.runs());
  rates.set_trials_per_second(runs / seconds);
  rates.set_utilisation(std::clamp((last.busy_seconds() - first.busy_seconds()) / seconds, 0.0, 1.0));
  const double failed = static_cast<double>(last.failed_runs()) - static_cast<double>(first.failed_runs());
  if (runs > 0) rates.set_error_rate(std::clamp(failed / runs, 0.0, 1.0));
  return rates;
}

std::map<std::string, std::vector<double>> Tracker::Impl::ReferenceTimes() const {
  std::map<std::string, std::vector<double>> times;
  for (const auto& [id, session] : sessions_) {
    for (const v1::DeviceDescription& device : session->status.devices()) {
      auto counts = session->counts.find(device.name());
      if (counts == session->counts.end()) continue;
      double seconds = counts->second.back().total.reference_seconds();
      if (seconds > 0) times[ClassOf(device.target(), device.facts().model())].push_back(seconds);
    }
  }
  for (auto& [model, seconds] : times) std::sort(seconds.begin(), seconds.end());
  return times;
}

double Tracker::Impl::DriftOf(const Session& session, const v1::DeviceDescription& device,
                              const std::map<std::string, std::vector<double>>& references, size_t fewest) {
  const auto counts = session.counts.find(device.name());
  const double own = counts == session.counts.end() ? 0 : counts->second.back().total.reference_seconds();
  const auto peers = references.find(ClassOf(device.target(), device.facts().model()));
  if (own <= 0 || peers == references.end() || peers->second.size() < fewest) return 0;
  return own / peers->second[(peers->second.size() - 1) / 2];
}

void Tracker::Impl::ExcludeDrifting(Clock::time_point now) {
  if (options_.exclude_drift <= 0 || now < exclude_at_) return;
  exclude_at_ = now + kExcludeEvery;
  const std::map<std::string, std::vector<double>> references = ReferenceTimes();
  for (auto& [id, session] : sessions_) {
    for (const v1::DeviceDescription& device : session->status.devices()) {
      const double drift = DriftOf(*session, device, references, kFewestToExclude);
      const bool exclude = drift > 0 && std::max(drift, 1 / drift) > options_.exclude_drift;
      if (exclude == session->excluded.contains(device.name())) continue;
      LogEvent(LogLevel::kWarning, exclude ? "device_excluded" : "device_taken_back",
               {{"worker", session->status.name()}, {"device", device.name()}, {"drift", std::to_string(drift)}});
      if (exclude) {
        session->excluded.insert(device.name());
      } else {
        session->excluded.erase(device.name());
      }
      SetDeviceState(*session, device.name(), session->StateOf(device));
    }
  }
}

std::map<std::string, v1::ModelStatus> Tracker::Impl::Models() const {
  std::map<std::string, v1::ModelStatus> models;
  auto at = [&](const std::string& device_class) -> v1::ModelStatus& {
    v1::ModelStatus& model = models[device_class];
    size_t end = device_class.find('\n');
    model.set_kind(device_class.substr(0, end));
    model.set_model(device_class.substr(end + 1));
    return model;
  };
  for (const auto& [id, session] : sessions_) {
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
  for (const auto& [id, queue] : queues_) {
    for (const auto& [number, request] : queue->unfinished) {
      if (request->lease != 0 || request->parked) continue;
      v1::ModelStatus& model = at(request->device_class);
      model.set_pending(model.pending() + 1);
    }
  }
  return models;
}

v1::WorkerStatus Tracker::Impl::StatusOf(const Session& session, Clock::time_point now,
                                         const std::map<std::string, std::vector<double>>& references) const {
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

v1::QueueStatus Tracker::Impl::StatusOf(const Queue& queue) {
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

// A page's name is the part of the list that it goes on with, and the key of the last element before it.
absl::Status Tracker::Impl::ListWorkers(const std::string& page, size_t most_bytes,
                                        v1::ListWorkersResponse& response) const {
  if (!page.empty() && std::strchr("wqm", page[0]) == nullptr)
    return absl::InvalidArgumentError("ListWorkersRequest.page is none that this tracker gave");
  const char part = page.empty() ? 'w' : page[0];
  const std::string last = page.empty() ? "" : page.substr(1);
  size_t bytes = 0;
  // False when the page is full: the next one goes on behind `key`.
  const auto fits = [&](char of, const std::string& key, size_t size) {
    bytes += size;
    if (bytes > most_bytes) response.set_next_page(of + key);
    return bytes <= most_bytes;
  };
  if (part == 'w') {
    std::map<std::string, const Session*> sessions;
    for (const auto& [id, session] : sessions_)
      sessions[session->status.name() + '\0' + session->status.worker_id()] = session.get();
    const Clock::time_point now = Now();
    const std::map<std::string, std::vector<double>> references = ReferenceTimes();
    for (auto next = sessions.upper_bound(last); next != sessions.end(); ++next) {
      v1::WorkerStatus& status = *response.add_workers();
      status = StatusOf(*next->second, now, references);
      if (!fits('w', next->first, status.ByteSizeLong())) return absl::OkStatus();
    }
  }
  if (part != 'm') {
    std::map<std::string, const Queue*> queues;
    for (const auto& [id, queue] : queues_) {
      const std::string number = std::to_string(queue->number);
      queues[std::string(20 - number.size(), '0') + number] = queue.get();
    }
    for (auto next = queues.upper_bound(part == 'q' ? last : ""); next != queues.end(); ++next) {
      v1::QueueStatus& status = *response.add_queues();
      status = StatusOf(*next->second);
      if (!fits('q', next->first, status.ByteSizeLong())) return absl::OkStatus();
    }
  }
  std::map<std::string, v1::ModelStatus> models = Models();
  for (auto next = models.upper_bound(part == 'm' ? last : ""); next != models.end(); ++next) {
    v1::ModelStatus& status = *response.add_models();
    status = std::move(next->second);
    if (!fits('m', next->first, status.ByteSizeLong())) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace diapason
