// Sessions and leases of workers.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/convert.h"
#include "worker/log.h"
#include "worker/outcome_check.h"
#include "worker/tracker_impl.h"

namespace diapason {
namespace {

constexpr uint32_t kDefaultAttempts = 2;
constexpr uint32_t kMaxAttempts = 10;
// Of what a worker says of itself, and of one of its devices: all of it is kept, for each worker.
constexpr size_t kMaxRegistration = 32 << 10, kMaxStatusText = 1 << 10;
// A worker that was in quarantine is forgotten after so long, and the oldest when there are too many.
constexpr std::chrono::hours kFaultsKept{1};
constexpr size_t kMostFaults = 4096;

}  // namespace

absl::Status CheckDevice(const std::string& worker, const v1::DeviceDescription& device) {
  if (!device.has_facts()) return absl::OkStatus();  // it has not started yet, and nobody is given it
  const absl::Status checked = CheckedFacts(device).status();
  if (checked.ok()) return checked;
  return absl::InvalidArgumentError("device '" + device.name() + "' of worker '" + worker +
                                    "' cannot be as it says: " + std::string(checked.message()) +
                                    "; install the tracker's version of diapason there");
}

absl::Status Tracker::Impl::CheckWorker(const v1::RegisterRequest& request) const {
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

absl::Status Tracker::Impl::Register(const v1::RegisterRequest& request, v1::RegisterResponse& response) {
  RETURN_IF_ERROR(Running());
  uint32_t protocol = 0;
  RETURN_IF_ERROR(CompareProtocols("tracker", request.protocol(), protocol));
  RETURN_IF_ERROR(CheckWorker(request));
  for (const auto& [id, session] : sessions_) {
    if (session->status.worker_id() != request.worker_id()) continue;
    EndSession(std::string(id), "the worker started a new session", /*counts=*/true);
    break;
  }
  if (sessions_.size() >= options_.max_workers) {
    return absl::ResourceExhaustedError("the tracker has " + std::to_string(sessions_.size()) +
                                        " workers and takes no more");
  }
  Session& session = AddSession(NewSecret(), request);
  SaveSession(session);
  LogEvent(LogLevel::kInfo, "worker_registered",
           {{"worker", request.name()},
            {"devices", std::to_string(request.devices_size())},
            {"session", ShortId(session.id)}});
  response.set_protocol(protocol);
  response.set_session(session.id);
  response.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_session_ms(static_cast<uint32_t>(options_.session.count()));
  return absl::OkStatus();
}

Tracker::Impl::Session& Tracker::Impl::AddSession(const std::string& id, const v1::RegisterRequest& worker) {
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
  if (const auto faults = faults_.find(worker.worker_id()); faults != faults_.end() && faults->second.until > Now()) {
    session->quarantined_until = faults->second.until;
    session->quarantine_text = faults->second.why;
  }
  RefreshDevices(*session);
  session->last_report = Now();
  return *(sessions_[id] = std::move(session));
}

void Tracker::Impl::Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) {
  absl::StatusOr<Session*> found = FindSession(request.session());
  if (!found.ok()) {
    answers_.push_back([reply = std::move(reply), status = found.status()] { reply(status, {}); });
    return;
  }
  Session& session = **found;
  AnswerLease(session);  // an older call
  session.waiting = std::move(reply);
  session.capacity.clear();
  for (const v1::DeviceCapacity& device : request.capacity())
    if (session.Device(device.device()) != nullptr) session.capacity[device.device()] = device.free();
  session.wait_until =
      Now() + std::min<Clock::duration>(std::chrono::milliseconds(request.max_wait_ms()), options_.max_wait);
  Redeliver(session, request.received());
  DispatchTo(session);
  bool has_news = !session.revoked.empty() ||
                  std::any_of(session.leases.begin(), session.leases.end(),
                              [&](const auto& entry) { return entry.second.batch == session.batch + 1; });
  if (has_news || request.max_wait_ms() == 0) {
    AnswerLease(session);
  } else if (!session.in_line) {
    session.in_line = true;
    waiting_sessions_.push_back(session.id);
  }
}

// What was granted by an answer that did not arrive goes into the next one, or, when that is full, into those after it.
void Tracker::Impl::Redeliver(Session& session, uint64_t received) {
  session.next_bytes = 0;
  for (auto& [id, lease] : session.leases) {
    if (lease.batch <= received) continue;
    const bool fits = session.next_bytes <= options_.max_answer_bytes;
    lease.batch = session.batch + (fits ? 1 : 2);
    if (fits) session.next_bytes += lease.request->bytes;
    uint32_t& free = session.capacity[lease.device];
    free -= std::min(free, 1u);
  }
}

void Tracker::Impl::DispatchTo(Session& session) {
  struct Share {
    std::string device, device_class;
    size_t left;
  };
  std::vector<Share> shares;
  for (const auto& [device, classes] : session.classes) {
    for (const std::string& device_class : classes) {
      size_t pending = 0;
      for (const auto& [id, queue] : queues_) {
        if (auto line = queue->pending.find(device_class); line != queue->pending.end()) pending += line->second.size();
      }
      // The other devices' workers are about to ask as well.
      const size_t serving = std::max<size_t>(1, devices_serving_[device_class]);
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

void Tracker::Impl::AnswerLease(Session& session, absl::Status status) {
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
  answers_.push_back([reply = std::exchange(session.waiting, nullptr), status = std::move(status),
                      response = std::move(response)]() mutable { reply(status, std::move(response)); });
}

absl::Status Tracker::Impl::Report(const v1::ReportRequest& request, v1::ReportResponse& response) {
  ASSIGN_OR_RETURN(Session * session, FindSession(request.session()));
  session->last_report = Now();
  for (v1::DeviceStatus device : request.devices()) {
    if (session->Device(device.device()) == nullptr) continue;
    device.DiscardUnknownFields();
    if (device.text().size() > kMaxStatusText) device.set_text(CutMiddle(Printable(device.text()), kMaxStatusText));
    SetDeviceState(*session, device.device(), device.state());
    auto known = std::find_if(session->status.mutable_states()->begin(), session->status.mutable_states()->end(),
                              [&](const v1::DeviceStatus& s) { return s.device() == device.device(); });
    (known != session->status.mutable_states()->end() ? *known : *session->status.add_states()) = device;
  }
  if (!request.devices().empty()) SaveSession(*session);
  if (request.has_statistics()) {
    *session->status.mutable_statistics() = request.statistics();
    session->status.mutable_statistics()->DiscardUnknownFields();
  }
  for (const v1::DeviceStatistics& device : request.device_statistics())
    if (session->Device(device.device()) != nullptr) NoteCounts(*session, device);
  for (const v1::LeaseOutcome& outcome : request.outcomes()) TakeOutcome(*session, outcome);
  for (uint64_t id : request.renew()) {
    auto lease = session->leases.find(id);
    if (lease == session->leases.end()) {
      response.add_over(id);
    } else {
      lease->second.expires = Now() + options_.lease;
    }
  }
  return absl::OkStatus();
}

void Tracker::Impl::TakeOutcome(Session& session, const v1::LeaseOutcome& outcome) {
  auto found = session.leases.find(outcome.lease());
  if (found == session.leases.end()) return;  // over: too late, or reported twice
  const LeaseEntry lease = found->second;
  const RequestPtr entry = lease.request;
  EraseLease(session, outcome.lease());
  session.status.set_done(session.status.done() + 1);
  v1::MeasureResult result = outcome.result();
  TrimOutcome(result);
  if (result.has_error()) session.status.set_errors(session.status.errors() + 1);
  const v1::DeviceDescription* device = session.Device(lease.device);
  const std::string fault = FaultOfOutcome(entry->message, result, device == nullptr ? nullptr : &device->facts());
  // A worker that gives up for reasons of its own (`cancelled`: it stops) has said nothing.
  bool no_answer = result.has_cancelled() || IsInfrastructure(result);
  if (!fault.empty()) {
    ++bad_outcomes_;
    Quarantine(session, "it gave a bad outcome: " + fault);
    GiveBack(entry);  // no attempt of the candidate's: workers that lie by ever new names would use them up
    Dispatch(entry->device_class);
  } else if (std::optional<v1::MeasureResult> blamed = Blame(session, *entry, result)) {
    LogTrial(LogLevel::kWarning, "trial_blamed", *entry, {{"why", blamed->error().text()}});
    Finish(entry, *std::move(blamed));
  } else if (no_answer) {
    Retry(entry, std::move(result));
  } else if (lease.race_seconds > 0 && !SpeaksFor(*entry, result, lease.race_seconds)) {
    GiveBack(entry);  // it came by this lease from a queue whose best is faster
    Dispatch(entry->device_class);
  } else {
    Finish(entry, std::move(result), lease.race_seconds);
  }
}

void Tracker::Impl::GiveBack(const RequestPtr& request) {
  --request->attempts;
  Requeue(request);
  SaveAttempts(*request);
}

void Tracker::Impl::Quarantine(Session& session, const std::string& why) {
  const std::string& id = session.status.worker_id();
  if (faults_.size() >= kMostFaults && !faults_.contains(id)) faults_.erase(faults_.begin());
  Faults& faults = faults_[id];
  auto time = options_.first_quarantine;
  for (uint32_t i = 0; i < faults.count && time < options_.longest_quarantine; ++i) time *= 2;
  ++faults.count;
  faults.until = Now() + std::min(time, options_.longest_quarantine);
  faults.why = why;
  session.quarantined_until = faults.until;
  session.quarantine_text = why;
  LogEvent(LogLevel::kError, "worker_quarantined",
           {{"worker", session.status.name()}, {"worker_id", id}, {"why", why}});
  RefreshDevices(session);
  for (auto& [key, recent] : recent_)
    if (recent.worker_id == id) recent.until = {};  // nobody else is to have its word
  std::set<std::string> classes;
  for (const auto& [lease, entry] : std::map<uint64_t, LeaseEntry>(session.leases)) {
    EraseLease(session, lease);
    session.revoked.push_back(lease);
    GiveBack(entry.request);
    classes.insert(entry.request->device_class);
  }
  AnswerLease(session);
  for (const std::string& device_class : classes) Dispatch(device_class);
}

void Tracker::Impl::EndQuarantines(Clock::time_point now) {
  std::erase_if(faults_, [&](const auto& entry) { return entry.second.until + kFaultsKept < now; });
  for (auto& [id, session] : sessions_) {
    if (!session->quarantined_until.has_value() || *session->quarantined_until > now) continue;
    session->quarantined_until.reset();
    RefreshDevices(*session);
    LogEvent(LogLevel::kInfo, "worker_taken_back", {{"worker", session->status.name()}});
    if (session->waiting == nullptr) continue;
    DispatchTo(*session);
    if (session->next_bytes > 0) AnswerLease(*session);
  }
}

std::optional<v1::MeasureResult> Tracker::Impl::Blame(Session& session, Request& request,
                                                      const v1::MeasureResult& result) const {
  if (!result.runner_lost() || !IsInfrastructure(result)) return std::nullopt;
  request.lost_runners[session.status.worker_id()] = "worker '" + session.status.name() + "': " + result.error().text();
  if (request.lost_runners.size() < 2) return std::nullopt;
  std::string text = "two workers lost their runners to it: ";
  for (const auto& [worker, said] : request.lost_runners) text += (text.back() == ' ' ? "" : "; ") + said;
  v1::MeasureResult blamed = result;
  blamed.clear_runner_lost();
  SetError(ErrorKind::kRunCrash, ParseStage(result.error().stage()).value_or(MeasureStage::kRun), text,
           *blamed.mutable_error());
  return blamed;
}

void Tracker::Impl::Retry(const RequestPtr& request, v1::MeasureResult why) {
  uint32_t allowed = request->message.max_attempts() > 0 ? request->message.max_attempts() : kDefaultAttempts;
  if (request->attempts < std::min(allowed, kMaxAttempts)) {
    const bool fault = IsInfrastructure(why);
    LogTrial(fault ? LogLevel::kWarning : LogLevel::kInfo, "trial_retried", *request,
             {{"why", fault ? why.error().text() : why.cancelled().reason()}});
    Requeue(request);
    SaveAttempts(*request);
    Dispatch(request->device_class);
    return;
  }
  if (!why.has_error()) why = InfrastructureResult(MeasureStage::kQueue, "the worker stopped");
  Finish(request, std::move(why));
}

void Tracker::Impl::EndSession(const std::string& id, const std::string& why, bool counts) {
  auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  for (const auto& [device, classes] : session->classes) StopServing(classes);
  if (session->in_line) std::erase(waiting_sessions_, id);
  std::map<uint64_t, LeaseEntry> leases = std::exchange(session->leases, {});
  LogEvent(counts ? LogLevel::kWarning : LogLevel::kInfo, "session_ended",
           {{"worker", session->status.name()},
            {"session", ShortId(id)},
            {"leases", std::to_string(leases.size())},
            {"why", why}});
  if (store_ != nullptr) {
    store_->EraseSession(id);
    for (const auto& [lease, entry] : leases) store_->EraseLease(lease);
  }
  AnswerLease(*session, absl::NotFoundError("this session is over: " + why));
  for (auto it = leases.rbegin(); it != leases.rend(); ++it) {  // backwards, since each goes to the front of its line
    const RequestPtr& request = it->second.request;
    if (counts) {
      Retry(request,
            InfrastructureResult(MeasureStage::kQueue, "worker '" + session->status.name() + "' was lost: " + why));
      continue;
    }
    request->tried.erase(session->status.worker_id());
    GiveBack(request);
    Dispatch(request->device_class);
  }
}

void Tracker::Impl::Leave(const std::string& session) { EndSession(session, "the worker left", /*counts=*/false); }

}  // namespace diapason
