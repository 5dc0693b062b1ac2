#include "worker/tracker/leases.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace diapason::tracker {
namespace {

// Deadlines of a request that names none, as workers have them (PipelineOptions), and what starting a runner and
// probing its device may take between two runs.
constexpr double kBuildSeconds = 30, kRunSeconds = 10, kVerifySeconds = 60, kRestartSeconds = 10,
                 kNetworkProgramSeconds = 5;

}  // namespace

std::optional<std::string> FreeDevice(const Session& session, const std::string& device_class) {
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

void Leases::Wait(Session& session, const v1::LeaseRequest& request, Tracker::Reply<v1::LeaseResponse> reply) {
  Answer(session);  // an older call
  session.waiting = std::move(reply);
  session.capacity.clear();
  for (const v1::DeviceCapacity& device : request.capacity())
    if (session.Device(device.device()) != nullptr) session.capacity[device.device()] = device.free();
  session.wait_until = parts_.clock.Now() + std::min<Clock::duration>(std::chrono::milliseconds(request.max_wait_ms()),
                                                                      parts_.options.max_wait);
  Redeliver(session, request.received());
  DispatchTo(session);
  bool has_news = !session.revoked.empty() ||
                  std::any_of(session.leases.begin(), session.leases.end(),
                              [&](const auto& entry) { return entry.second.batch == session.batch + 1; });
  if (has_news || request.max_wait_ms() == 0) {
    Answer(session);
  } else if (!session.in_line) {
    session.in_line = true;
    waiting_.push_back(session.id);
  }
}

void Leases::Redeliver(Session& session, uint64_t received) const {
  session.next_bytes = 0;
  for (auto& [id, lease] : session.leases) {
    if (lease.batch <= received) continue;
    const bool fits = session.next_bytes <= parts_.options.max_answer_bytes;
    lease.batch = session.batch + (fits ? 1 : 2);
    if (fits) session.next_bytes += lease.request->bytes;
    uint32_t& free = session.capacity[lease.device];
    free -= std::min(free, 1u);
  }
}

void Leases::DispatchTo(Session& session) {
  struct Share {
    std::string device, device_class;
    size_t left;
  };
  std::vector<Share> shares;
  for (const auto& [device, classes] : session.classes) {
    for (const std::string& device_class : classes) {
      const size_t pending = parts_.lines.Count(device_class);
      // The other devices' workers are about to ask as well.
      const size_t serving = std::max<size_t>(1, parts_.workers.Serving(device_class));
      if (pending > 0) shares.push_back({device, device_class, (pending + serving - 1) / serving});
    }
  }
  // The device with the most room first, so that none waits while another one has a line.
  while (!shares.empty()) {
    auto next = std::max_element(shares.begin(), shares.end(), [&](const Share& a, const Share& b) {
      return session.capacity[a.device] < session.capacity[b.device];
    });
    RequestPtr request =
        session.capacity[next->device] > 0 && TakesMore(session) ? TakePending(next->device_class, session) : nullptr;
    if (request != nullptr) Grant(session, next->device, request);
    if (request == nullptr || --next->left == 0) shares.erase(next);
  }
}

void Leases::Answer(Session& session, absl::Status status) {
  if (session.waiting == nullptr) return;
  v1::LeaseResponse response;
  response.set_batch(++session.batch);
  for (const auto& [id, lease] : session.leases) {
    if (lease.batch != session.batch) continue;
    v1::LeaseGrant& grant = *response.add_grants();
    grant.set_lease(id);
    grant.set_device(lease.device);
    *grant.mutable_request() = lease.request->message;
    grant.set_attempt(lease.request->attempts);
    grant.set_job(lease.request->queue->job());
  }
  for (uint64_t id : std::exchange(session.revoked, {})) response.add_revoked(id);
  parts_.journal.Answer([reply = std::exchange(session.waiting, nullptr), status = std::move(status),
                         response = std::move(response)]() mutable { reply(status, std::move(response)); });
}

void Leases::Forget(const Session& session) {
  if (session.in_line) std::erase(waiting_, session.id);
}

RequestPtr Leases::TakePending(const std::string& device_class, const Session& session) const {
  const std::string& worker = session.status.worker_id();
  return parts_.lines.Take(device_class, session.status.labels(), [&](const Request& request) {
    return !request.tried.contains(worker) || !parts_.workers.AnotherCould(request);
  });
}

bool Leases::TakesMore(const Session& session) const {
  return session.next_bytes <= parts_.options.max_answer_bytes &&
         session.leases.size() < parts_.options.max_leases_per_worker;
}

Clock::time_point Leases::LastMoment(const Session& session, const Request& request) const {
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
  return parts_.clock.Now() + 2 * parts_.options.lease +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(before));
}

void Leases::Grant(Session& session, const std::string& device, const RequestPtr& request) {
  uint64_t id = next_++;
  ++parts_.totals.granted;
  request->lease = id;
  request->waited = SecondsBetween(request->submitted, parts_.clock.Now());
  ++request->attempts;
  request->tried.insert(session.status.worker_id());
  request->session = session.id;
  // Of the answer that is about to be given.
  const Clock::time_point last = LastMoment(session, *request);
  session.leases[id] = {request,           device, parts_.clock.Now() + parts_.options.lease,
                        session.batch + 1, last,   request->message.best_seconds()};
  session.next_bytes += request->bytes;
  parts_.journal.PutLease(session, id);
  parts_.groups.Park(request);
  --session.capacity[device];
  LogTrial(LogLevel::kDebug, "trial_leased", *request,
           {{"lease", std::to_string(id)}, {"worker", session.status.name()}, {"device", device}});
}

void Leases::Dispatch(const std::string& device_class) {
  std::set<std::string> served;
  // One each in turn, until nobody in the line can take any.
  size_t in_vain = 0;
  while (in_vain < waiting_.size() && parts_.lines.Has(device_class)) {
    std::string id = std::move(waiting_.front());
    waiting_.pop_front();
    Session* found = parts_.workers.Find(id);
    if (found == nullptr) continue;
    Session& session = *found;
    session.in_line = session.waiting != nullptr;
    if (!session.in_line) continue;
    waiting_.push_back(id);
    std::optional<std::string> device = FreeDevice(session, device_class);
    RequestPtr request = device.has_value() && TakesMore(session) ? TakePending(device_class, session) : nullptr;
    ++in_vain;
    if (request == nullptr) continue;
    in_vain = 0;
    Grant(session, *device, request);
    served.insert(id);
  }
  for (const std::string& id : served) Answer(*parts_.workers.Find(id));
}

void Leases::Restore(const TrackerState::Lease& stored, Session& session, const RequestPtr& request) {
  request->lease = stored.id;
  request->session = stored.session;
  request->waited = static_cast<double>(stored.waited) * 1e-9;
  ++request->attempts;
  request->tried.insert(session.status.worker_id());
  const Clock::time_point last = LastMoment(session, *request), expires = parts_.clock.Now() + parts_.options.lease;
  session.leases[stored.id] = {request, stored.device, expires, stored.batch, last, request->message.best_seconds()};
  parts_.groups.Join(request);
  parts_.groups.Park(request);
}

void Leases::Erase(Session& session, uint64_t id) {
  session.leases.erase(id);
  parts_.journal.EraseLease(id);
}

// The worker goes on with the program, which is the same; whose id the lease has is known here alone.
void Leases::HandOver(Session& session, uint64_t id, const RequestPtr& heir) {
  const RequestPtr before = session.leases.at(id).request;
  parts_.groups.HandOver(before, heir);
  heir->lease = id;
  heir->session = session.id;
  heir->waited = SecondsBetween(heir->submitted, parts_.clock.Now());
  heir->tried.insert(before->tried.begin(), before->tried.end());
  ++heir->attempts;
  session.leases.at(id).request = heir;
  parts_.journal.PutLease(session, id);
  LogTrial(LogLevel::kDebug, "trial_handed_over", *heir, {{"lease", std::to_string(id)}});
}

}  // namespace diapason::tracker
