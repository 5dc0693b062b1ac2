#include "worker/tracker/device_counts.h"

#include <algorithm>
#include <chrono>

#include "worker/rpc/log.h"

namespace diapason::tracker {
namespace {

constexpr std::chrono::seconds kWindow{60};
constexpr std::chrono::seconds kCountsEvery{5};
// Fewer devices than this of one model cannot outvote one that is wrong.
constexpr size_t kFewestToExclude = 3;
constexpr std::chrono::seconds kExcludeEvery{1};

}  // namespace

void NoteCounts(Session& session, const v1::DeviceStatistics& total, Clock::time_point now) {
  std::deque<Counts>& counts = session.counts[total.device()];
  // The newest is always there; those before it are some seconds apart.
  if (counts.size() >= 2 && counts.back().at - counts[counts.size() - 2].at < kCountsEvery) counts.pop_back();
  counts.push_back({now, total});
  while (counts.size() > 2 && now - counts[1].at > kWindow) counts.pop_front();
}

v1::DeviceRates RatesOf(const Session& session, const std::string& device) {
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

References ReferenceTimes(const Sessions& sessions) {
  References times;
  for (const auto& [id, session] : sessions) {
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

double DriftOf(const Session& session, const v1::DeviceDescription& device, const References& references,
               size_t fewest) {
  const auto counts = session.counts.find(device.name());
  const double own = counts == session.counts.end() ? 0 : counts->second.back().total.reference_seconds();
  const auto peers = references.find(ClassOf(device.target(), device.facts().model()));
  if (own <= 0 || peers == references.end() || peers->second.size() < fewest) return 0;
  return own / peers->second[(peers->second.size() - 1) / 2];
}

void DriftWatch::Look(Clock::time_point now) {
  if (options_.exclude_drift <= 0 || now < next_) return;
  next_ = now + kExcludeEvery;
  const References references = ReferenceTimes(workers_.sessions());
  for (auto& [id, session] : workers_.sessions()) {
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
      workers_.SetDeviceState(*session, device.name(), session->StateOf(device));
    }
  }
}

}  // namespace diapason::tracker
