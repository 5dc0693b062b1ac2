// Which device gets which request.
#include <algorithm>

#include "worker/tracker_impl.h"

namespace diapason {
namespace {

// Deadlines of a request that names none, as workers have them (PipelineOptions), and what starting a runner and
// probing its device may take between two runs.
constexpr double kBuildSeconds = 30, kRunSeconds = 10, kVerifySeconds = 60, kRestartSeconds = 10,
                 kNetworkProgramSeconds = 5;

bool Carries(const google::protobuf::Map<std::string, std::string>& labels,
             const google::protobuf::Map<std::string, std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

}  // namespace

void Tracker::Impl::Enqueue(const RequestPtr& request, bool in_front) {
  request->lease = 0;
  request->session.clear();
  std::deque<RequestPtr>& line = request->queue->pending[request->device_class];
  in_front ? line.push_front(request) : line.push_back(request);
}

void Tracker::Impl::Unqueue(const RequestPtr& request) {
  if (request->lease != 0 || request->parked) return;
  const auto line = request->queue->pending.find(request->device_class);
  if (line == request->queue->pending.end()) return;
  const auto place = std::find(line->second.begin(), line->second.end(), request);
  if (place != line->second.end()) line->second.erase(place);
  if (line->second.empty()) request->queue->pending.erase(line);
}

void Tracker::Impl::Requeue(const RequestPtr& request) {
  Unpark(request);
  Enqueue(request, /*in_front=*/true);
}

void Tracker::Impl::StopServing(const std::vector<std::string>& classes) {
  for (const std::string& device_class : classes) {
    const auto serving = devices_serving_.find(device_class);
    if (serving != devices_serving_.end() && --serving->second == 0) devices_serving_.erase(serving);
  }
}

// A device in quarantine serves nothing.
void Tracker::Impl::SetDeviceState(Session& session, const std::string& name, v1::DeviceState state) {
  const v1::DeviceDescription* device = session.Device(name);
  if (device == nullptr) return;
  std::vector<std::string>& classes = session.classes[name];
  StopServing(std::exchange(classes, {}));
  if (state == v1::DEVICE_STATE_QUARANTINED || session.excluded.contains(name)) return;
  if (session.quarantined_until.has_value()) return;
  if (!device->facts().model().empty()) classes.push_back(ClassOf(device->target(), device->facts().model()));
  classes.push_back(ClassOf(device->target(), ""));
  for (const std::string& device_class : classes) ++devices_serving_[device_class];
}

void Tracker::Impl::RefreshDevices(Session& session) {
  for (const v1::DeviceDescription& device : session.status.devices())
    SetDeviceState(session, device.name(), session.StateOf(device));
}

bool Tracker::Impl::HasPending(const std::string& device_class) const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const auto& entry) { return entry.second->pending.contains(device_class); });
}

bool Tracker::Impl::AnotherWorkerCould(const Request& request) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const Session& session = *entry.second;
    return !request.tried.contains(session.status.worker_id()) &&
           Carries(session.status.labels(), request.queue->labels()) && session.Offers(request.device_class);
  });
}

std::optional<std::string> Tracker::Impl::FreeDevice(const Session& session, const std::string& device_class) const {
  std::optional<std::string> freest;
  uint32_t most = 0;
  for (const auto& [device, free] : session.capacity) {
    auto classes = session.classes.find(device);
    if (free <= most || classes == session.classes.end()) continue;
    if (std::find(classes->second.begin(), classes->second.end(), device_class) == classes->second.end()) continue;
    freest = device;
    most = free;
  }
  return freest;
}

Tracker::Impl::RequestPtr Tracker::Impl::TakePending(const std::string& device_class, const Session& session) {
  Queue* best = nullptr;
  size_t best_at = 0;
  for (auto& [id, queue] : queues_) {
    auto line = queue->pending.find(device_class);
    if (line == queue->pending.end() || !Carries(session.status.labels(), queue->labels())) continue;
    bool better = best == nullptr || queue->priority() > best->priority() ||
                  (queue->priority() == best->priority() && queue->pass < best->pass);
    if (!better) continue;
    for (size_t i = 0; i < line->second.size(); ++i) {
      const Request& request = *line->second[i];
      if (request.tried.contains(session.status.worker_id()) && AnotherWorkerCould(request)) continue;
      best = queue.get();
      best_at = i;
      break;
    }
  }
  if (best == nullptr) return nullptr;
  std::deque<RequestPtr>& line = best->pending[device_class];
  RequestPtr request = line[best_at];
  line.erase(line.begin() + static_cast<std::ptrdiff_t>(best_at));
  if (line.empty()) best->pending.erase(device_class);
  best->pass += 1 / best->weight();
  return request;
}

Tracker::Impl::Clock::time_point Tracker::Impl::LastMoment(const Session& session, const Request& request) const {
  const auto seconds = [](const v1::MeasureRequest& message) {
    const auto given = [](double timeout, double otherwise) { return timeout > 0 ? timeout : otherwise; };
    const double build = given(message.build_timeout_seconds(), kBuildSeconds);
    double all = build + given(message.run_timeout_seconds(), kRunSeconds) + kRestartSeconds;
    if (message.mode() == v1::MEASURE_MODE_VERIFY || message.mode() == v1::MEASURE_MODE_TIME_AND_VERIFY)
      all += build + given(message.verify_timeout_seconds(), kVerifySeconds);
    // Programs of a network are built by all builders of the worker; few take long.
    if (message.has_network()) all += kNetworkProgramSeconds * message.network().plan().programs_size();
    return all;
  };
  double before = seconds(request.message);
  for (const auto& [id, lease] : session.leases) before += seconds(lease.request->message);
  return Now() + 2 * options_.lease +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(before));
}

void Tracker::Impl::Grant(Session& session, const std::string& device, const RequestPtr& request) {
  uint64_t id = next_lease_++;
  ++granted_;
  request->lease = id;
  request->waited = SecondsBetween(request->submitted, Now());
  ++request->attempts;
  request->tried.insert(session.status.worker_id());
  request->session = session.id;
  // Of the answer that is about to be given.
  const Clock::time_point last = LastMoment(session, *request);
  session.leases[id] = {request,           device, Now() + options_.lease,
                        session.batch + 1, last,   request->message.best_seconds()};
  session.next_bytes += request->bytes;
  SaveLease(session, id);
  Park(request);
  --session.capacity[device];
  LogTrial(LogLevel::kDebug, "trial_leased", *request,
           {{"lease", std::to_string(id)}, {"worker", session.status.name()}, {"device", device}});
}

void Tracker::Impl::Dispatch(const std::string& device_class) {
  std::set<std::string> served;
  // One each in turn, until nobody in the line can take any.
  size_t in_vain = 0;
  while (in_vain < waiting_sessions_.size() && HasPending(device_class)) {
    std::string id = std::move(waiting_sessions_.front());
    waiting_sessions_.pop_front();
    auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;
    Session& session = *found->second;
    session.in_line = session.waiting != nullptr;
    if (!session.in_line) continue;
    waiting_sessions_.push_back(id);
    std::optional<std::string> device = FreeDevice(session, device_class);
    RequestPtr request = device.has_value() && TakesMore(session) ? TakePending(device_class, session) : nullptr;
    ++in_vain;
    if (request == nullptr) continue;
    in_vain = 0;
    Grant(session, *device, request);
    served.insert(id);
  }
  for (const std::string& id : served) AnswerLease(*sessions_[id]);
}

}  // namespace diapason
