#include "worker/tracker/worker_watch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "worker/process/convert.h"
#include "worker/process/outcome_check.h"
#include "worker/rpc/log.h"

namespace diapason::tracker {
namespace {

// The candidate's own error, once two workers lost their runners to it.
std::optional<v1::MeasureResult> Blame(const Session& session, Request& request, const v1::MeasureResult& result) {
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

}  // namespace

void WorkerWatch::TakeOutcome(Session& session, const v1::LeaseOutcome& outcome) const {
  auto found = session.leases.find(outcome.lease());
  if (found == session.leases.end()) return;  // over: too late, or reported twice
  const LeaseEntry lease = found->second;
  const RequestPtr entry = lease.request;
  parts_.leases.Erase(session, outcome.lease());
  session.status.set_done(session.status.done() + 1);
  v1::MeasureResult result = outcome.result();
  TrimOutcome(result);
  if (result.has_error()) session.status.set_errors(session.status.errors() + 1);
  const v1::DeviceDescription* device = session.Device(lease.device);
  const std::string fault = FaultOfOutcome(entry->message, result, device == nullptr ? nullptr : &device->facts());
  // A worker that gives up for reasons of its own (`cancelled`: it stops) has said nothing.
  bool no_answer = result.has_cancelled() || IsInfrastructure(result);
  if (!fault.empty()) {
    ++parts_.totals.bad_outcomes;
    Quarantine(session, "it gave a bad outcome: " + fault);
    parts_.trials.GiveBack(
        entry);  // no attempt of the candidate's: workers that lie by ever new names would use them up
    parts_.leases.Dispatch(entry->device_class);
  } else if (std::optional<v1::MeasureResult> blamed = Blame(session, *entry, result)) {
    LogTrial(LogLevel::kWarning, "trial_blamed", *entry, {{"why", blamed->error().text()}});
    parts_.trials.Finish(entry, *std::move(blamed));
  } else if (no_answer) {
    parts_.trials.Retry(entry, std::move(result));
  } else if (lease.race_seconds > 0 && !SpeaksFor(*entry, result, lease.race_seconds)) {
    parts_.trials.GiveBack(entry);  // it came by this lease from a queue whose best is faster
    parts_.leases.Dispatch(entry->device_class);
  } else {
    parts_.trials.Finish(entry, std::move(result), lease.race_seconds);
  }
}

void WorkerWatch::ExpireLeases(Session& session, Clock::time_point now) const {
  const auto overdue = std::find_if(session.leases.begin(), session.leases.end(),
                                    [&](const auto& entry) { return entry.second.last <= now; });
  if (overdue != session.leases.end()) {
    const uint64_t id = overdue->first;
    const RequestPtr request = overdue->second.request;
    const std::string why = "it did not answer lease " + std::to_string(id) + " within the deadlines of its request";
    parts_.leases.Erase(session, id);
    ++parts_.totals.expired;
    session.revoked.push_back(id);
    Quarantine(session, why);
    return parts_.trials.Retry(
        request, InfrastructureResult(MeasureStage::kQueue, "worker '" + session.status.name() + "': " + why));
  }
  std::vector<uint64_t> over;
  for (const auto& [id, lease] : session.leases) {
    if (lease.expires <= now) over.push_back(id);
  }
  for (uint64_t id : over) {
    RequestPtr request = session.leases[id].request;
    parts_.leases.Erase(session, id);
    ++parts_.totals.expired;
    session.revoked.push_back(id);
    parts_.trials.Retry(request, InfrastructureResult(MeasureStage::kQueue, "worker '" + session.status.name() +
                                                                                "' did not renew its lease"));
  }
  if (!over.empty()) parts_.leases.Answer(session);
}

void WorkerWatch::Quarantine(Session& session, const std::string& why) const {
  const std::string& id = session.status.worker_id();
  const Quarantines::Fault& fault = parts_.quarantines.Begin(id, why, parts_.clock.Now());
  session.quarantined_until = fault.until;
  session.quarantine_text = why;
  LogEvent(LogLevel::kError, "worker_quarantined",
           {{"worker", session.status.name()}, {"worker_id", id}, {"why", why}});
  parts_.workers.RefreshDevices(session);
  parts_.recent.Distrust(id);
  std::set<std::string> classes;
  for (const auto& [lease, entry] : std::map<uint64_t, LeaseEntry>(session.leases)) {
    parts_.leases.Erase(session, lease);
    session.revoked.push_back(lease);
    parts_.trials.GiveBack(entry.request);
    classes.insert(entry.request->device_class);
  }
  parts_.leases.Answer(session);
  for (const std::string& device_class : classes) parts_.leases.Dispatch(device_class);
}

void WorkerWatch::EndQuarantines(Clock::time_point now) const {
  parts_.quarantines.Forget(now);
  for (auto& [id, session] : parts_.workers.sessions()) {
    if (!session->quarantined_until.has_value() || *session->quarantined_until > now) continue;
    session->quarantined_until.reset();
    parts_.workers.RefreshDevices(*session);
    LogEvent(LogLevel::kInfo, "worker_taken_back", {{"worker", session->status.name()}});
    if (session->waiting == nullptr) continue;
    parts_.leases.DispatchTo(*session);
    if (session->next_bytes > 0) parts_.leases.Answer(*session);
  }
}

void WorkerWatch::EndSession(const std::string& id, const std::string& why, bool counts) const {
  std::unique_ptr<Session> session = parts_.workers.Remove(id);
  if (session == nullptr) return;
  parts_.leases.Forget(*session);
  std::map<uint64_t, LeaseEntry> leases = std::exchange(session->leases, {});
  LogEvent(counts ? LogLevel::kWarning : LogLevel::kInfo, "session_ended",
           {{"worker", session->status.name()},
            {"session", ShortId(id)},
            {"leases", std::to_string(leases.size())},
            {"why", why}});
  parts_.journal.EraseSession(id);
  for (const auto& [lease, entry] : leases) parts_.journal.EraseLease(lease);
  parts_.leases.Answer(*session, absl::NotFoundError("this session is over: " + why));
  for (auto it = leases.rbegin(); it != leases.rend(); ++it) {  // backwards, since each goes to the front of its line
    const RequestPtr& request = it->second.request;
    if (counts) {
      parts_.trials.Retry(request, InfrastructureResult(MeasureStage::kQueue,
                                                        "worker '" + session->status.name() + "' was lost: " + why));
      continue;
    }
    request->tried.erase(session->status.worker_id());
    parts_.trials.GiveBack(request);
    parts_.leases.Dispatch(request->device_class);
  }
}

}  // namespace diapason::tracker
