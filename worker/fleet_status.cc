#include "worker/fleet_status.h"

#include <chrono>
#include <thread>

#include "base/check.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "worker/rpc/channel.h"
#include "worker/worker_pages.h"

namespace diapason {
namespace {

constexpr std::chrono::milliseconds kStatusCallTimeout{10000};

std::string StateText(v1::DeviceState state) {
  switch (state) {
    case v1::DEVICE_STATE_READY: return "ready";
    case v1::DEVICE_STATE_RESTARTING: return "restarting";
    case v1::DEVICE_STATE_QUARANTINED: return "quarantined";
    default: return "unknown";
  }
}

FleetStatus::Device DeviceOf(const v1::WorkerStatus& worker, const v1::DeviceDescription& description) {
  FleetStatus::Device device;
  device.worker = worker.name();
  device.host = worker.host();
  device.labels = {worker.labels().begin(), worker.labels().end()};
  device.name = description.name();
  device.target = description.target();
  device.model = description.facts().model();
  device.uuid = description.facts().uuid();
  device.state = StateText(description.state());
  device.last_seen_seconds = worker.last_seen_seconds();
  for (const v1::DeviceStatus& state : worker.states()) {
    if (state.device() != device.name) continue;
    device.state = StateText(state.state());
    device.why = state.state() == v1::DEVICE_STATE_READY ? "" : state.text();
  }
  for (const v1::DeviceRates& rates : worker.rates()) {
    if (rates.device() != device.name) continue;
    device.leases = rates.leases();
    device.runs = static_cast<int64_t>(rates.runs());
    device.trials_per_second = rates.trials_per_second();
    device.utilisation = rates.utilisation();
    device.error_rate = rates.error_rate();
    device.drift = rates.drift();
    device.excluded = rates.excluded();
  }
  return device;
}

}  // namespace

absl::StatusOr<FleetStatus> AskFleetStatus(const std::string& tracker, double wait_seconds,
                                           const std::shared_ptr<const ClientCredentials>& credentials) {
  Peer peer(tracker, credentials);
  const PeerStub<v1::Tracker> stub(peer);
  PeerRetry retry(peer, wait_seconds);
  v1::ListWorkersResponse response;
  while (true) {
    CallGuard call;
    retry.Begin();
    absl::Status status = ListAllWorkers(
        [&](const v1::ListWorkersRequest& request, v1::ListWorkersResponse& page) {
          return call.Run(kStatusCallTimeout,
                          [&](grpc::ClientContext& context) { return stub->ListWorkers(&context, request, &page); });
        },
        response);
    if (status.ok()) break;
    if (absl::IsUnimplemented(status)) return NoTracker(tracker);
    if (!IsTransient(status)) return status;
    retry.NextAddress();
    const std::optional<std::chrono::milliseconds> wait = retry.Pause();
    if (!wait.has_value()) return NoAnswer("tracker", tracker, status, credentials);
    std::this_thread::sleep_for(*wait);
  }
  FleetStatus status;
  for (const v1::ModelStatus& m : response.models())
    status.models.push_back({m.kind(), m.model(), m.total(), m.free(), m.pending(), m.quarantined()});
  for (const v1::WorkerStatus& worker : response.workers()) {
    for (const v1::DeviceDescription& device : worker.devices()) status.devices.push_back(DeviceOf(worker, device));
  }
  for (const v1::QueueStatus& q : response.queues())
    status.queues.push_back(
        {q.name(), q.priority(), q.weight(), q.pending(), q.leased(), static_cast<int64_t>(q.done())});
  return status;
}

}  // namespace diapason
