#include "worker/tracker/worker_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "worker/process/convert.h"

namespace diapason::tracker {
namespace {

// Of what a worker says of itself, and of one of its devices: all of it is kept, for each worker.
constexpr size_t kMaxRegistration = 32 << 10, kMaxStatusText = 1 << 10;

}  // namespace

absl::Status CheckDevice(const std::string& worker, const v1::DeviceDescription& device) {
  if (!device.has_facts()) return absl::OkStatus();  // it has not started yet, and nobody is given it
  const absl::Status checked = CheckedFacts(device).status();
  if (checked.ok()) return checked;
  return absl::InvalidArgumentError("device '" + device.name() + "' of worker '" + worker +
                                    "' cannot be as it says: " + std::string(checked.message()) +
                                    "; install the tracker's version of diapason there");
}

absl::Status WorkerTable::Check(const v1::RegisterRequest& request) const {
  if (request.worker_id().empty()) return absl::InvalidArgumentError("a worker without worker_id");
  if (request.ByteSizeLong() > kMaxRegistration) {
    return absl::InvalidArgumentError("worker '" + request.name() + "' describes itself in " +
                                      std::to_string(request.ByteSizeLong()) + " bytes, more than the limit of " +
                                      std::to_string(kMaxRegistration));
  }
  if (request.devices().empty()) return absl::InvalidArgumentError("worker '" + request.name() + "' has no device");
  std::set<std::string> names;
  for (const v1::DeviceDescription& device : request.devices()) {
    if (!names.insert(device.name()).second) {
      return absl::InvalidArgumentError("worker '" + request.name() + "' has two devices named '" + device.name() +
                                        "'");
    }
    RETURN_IF_ERROR(CheckDevice(request.name(), device));
    // Processors may be shared out between workers; a GPU has one owner.
    if (device.facts().uuid().empty() || KindOfTarget(device.target()) != "cuda") continue;
    for (const auto& [id, session] : sessions_) {
      if (session->status.worker_id() == request.worker_id()) continue;
      for (const v1::DeviceDescription& other : session->status.devices()) {
        if (other.facts().uuid() != device.facts().uuid()) continue;
        return absl::AlreadyExistsError("device '" + device.name() + "' (" + device.facts().uuid() + ") of worker '" +
                                        request.name() + "' is registered by worker '" + session->status.name() +
                                        "' already: stop one of them, or give them different devices");
      }
    }
  }
  return absl::OkStatus();
}

Session& WorkerTable::Add(const std::string& id, const v1::RegisterRequest& worker, const Quarantines::Fault* fault) {
  auto session = std::make_unique<Session>();
  session->id = id;
  session->worker = worker;
  session->worker.DiscardUnknownFields();
  session->status.set_worker_id(worker.worker_id());
  session->status.set_name(worker.name());
  session->status.set_host(worker.host());
  session->status.set_program(worker.program());
  *session->status.mutable_labels() = worker.labels();
  *session->status.mutable_devices() = session->worker.devices();
  session->status.mutable_statistics()->set_builders(worker.builders());
  session->status.mutable_statistics()->set_devices(static_cast<uint32_t>(worker.devices_size()));
  if (fault != nullptr) {
    session->quarantined_until = fault->until;
    session->quarantine_text = fault->why;
  }
  RefreshDevices(*session);
  session->last_report = clock_.Now();
  return *(sessions_[id] = std::move(session));
}

Session* WorkerTable::Find(const std::string& id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Session* WorkerTable::FindWorker(const std::string& worker_id) const {
  for (const auto& [id, session] : sessions_)
    if (session->status.worker_id() == worker_id) return session.get();
  return nullptr;
}

std::unique_ptr<Session> WorkerTable::Remove(const std::string& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  for (const auto& [device, classes] : session->classes) StopServing(classes);
  return session;
}

void WorkerTable::StopServing(const std::vector<std::string>& classes) {
  for (const std::string& device_class : classes) {
    const auto serving = serving_.find(device_class);
    if (serving != serving_.end() && --serving->second == 0) serving_.erase(serving);
  }
}

// A device in quarantine serves nothing.
void WorkerTable::SetDeviceState(Session& session, const std::string& name, v1::DeviceState state) {
  const v1::DeviceDescription* device = session.Device(name);
  if (device == nullptr) return;
  std::vector<std::string>& classes = session.classes[name];
  StopServing(std::exchange(classes, {}));
  if (state == v1::DEVICE_STATE_QUARANTINED || session.excluded.contains(name)) return;
  if (session.quarantined_until.has_value()) return;
  if (!device->facts().model().empty()) classes.push_back(ClassOf(device->target(), device->facts().model()));
  classes.push_back(ClassOf(device->target(), ""));
  for (const std::string& device_class : classes) ++serving_[device_class];
}

void WorkerTable::RefreshDevices(Session& session) {
  for (const v1::DeviceDescription& device : session.status.devices())
    SetDeviceState(session, device.name(), session.StateOf(device));
}

void WorkerTable::TakeStates(Session& session, const v1::ReportRequest& request) {
  for (v1::DeviceStatus device : request.devices()) {
    if (session.Device(device.device()) == nullptr) continue;
    device.DiscardUnknownFields();
    if (device.text().size() > kMaxStatusText) device.set_text(CutMiddle(Printable(device.text()), kMaxStatusText));
    SetDeviceState(session, device.device(), device.state());
    auto known = std::find_if(session.status.mutable_states()->begin(), session.status.mutable_states()->end(),
                              [&](const v1::DeviceStatus& s) { return s.device() == device.device(); });
    (known != session.status.mutable_states()->end() ? *known : *session.status.add_states()) = device;
  }
}

size_t WorkerTable::Serving(const std::string& device_class) const {
  const auto found = serving_.find(device_class);
  return found == serving_.end() ? 0 : found->second;
}

bool WorkerTable::AnotherCould(const Request& request) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const Session& session = *entry.second;
    return !request.tried.contains(session.status.worker_id()) &&
           Carries(session.status.labels(), request.queue->labels()) && session.Offers(request.device_class);
  });
}

}  // namespace diapason::tracker
