// One measurement for several requests: which ask for the same, and who gets whose outcome.
//
// Each request of a group stands in the line of its own queue, so that priorities, shares and labels mean what they
// always do. The first one that a worker takes is measured for all; the others are parked until its outcome is there.
// The state file knows nothing of groups: a tracker that goes on from it makes them anew.
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "worker/convert.h"
#include "worker/tracker_impl.h"

namespace diapason {
namespace {

// Equal for requests that ask for the same measurement, and for no others: who submits must not be able to make a
// request that gets another one's outcome.
std::string ShareKey(const v1::MeasureRequest& request, const google::protobuf::Map<std::string, std::string>& labels) {
  v1::MeasureRequest what = request;
  what.clear_id();
  what.clear_best_seconds();  // SpeaksFor compares them
  what.clear_max_attempts();
  what.clear_queue_timeout_seconds();
  what.clear_least_operations();
  what.clear_least_bytes();
  std::string bytes = what.SerializeAsString();
  const std::map<std::string, std::string> sorted(labels.begin(), labels.end());
  for (const auto& [key, value] : sorted) {
    for (const std::string* text : {&key, &value}) bytes += std::to_string(text->size()) + ":" + *text;
  }
  std::string sum(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(sum.data()));
  return sum;
}

}  // namespace

// A queue that asks for the same twice wants two measurements.
void Tracker::Impl::Join(const RequestPtr& request) {
  std::string key = ShareKey(request->message, request->queue->labels());
  Group& group = groups_[key];
  const bool asked = std::any_of(group.members.begin(), group.members.end(),
                                 [&](const RequestPtr& member) { return member->queue == request->queue; });
  if (asked) return;
  request->share_key = std::move(key);
  request->parked = group.measuring != nullptr;
  group.members.push_back(request);
}

void Tracker::Impl::Part(const RequestPtr& request) {
  const auto found = groups_.find(request->share_key);
  if (request->share_key.empty() || found == groups_.end()) return;
  Group& group = found->second;
  std::erase(group.members, request);
  if (group.measuring == request) group.measuring = nullptr;
  if (group.members.empty()) groups_.erase(found);
  request->share_key.clear();
  request->parked = false;
}

void Tracker::Impl::Park(const RequestPtr& measuring) {
  const auto found = groups_.find(measuring->share_key);
  if (measuring->share_key.empty() || found == groups_.end()) return;
  found->second.measuring = measuring;
  for (const RequestPtr& other : found->second.members) {
    if (other == measuring || other->parked || other->lease != 0) continue;
    Unqueue(other);
    other->parked = true;
  }
}

// What the lease cost is known of all: they asked for the same.
bool Tracker::Impl::Unpark(const RequestPtr& measured) {
  const auto found = groups_.find(measured->share_key);
  if (measured->share_key.empty() || found == groups_.end() || found->second.measuring != measured) return false;
  found->second.measuring = nullptr;
  bool any = false;
  for (const RequestPtr& other : found->second.members) {
    if (!other->parked) continue;
    other->parked = false;
    other->tried.insert(measured->tried.begin(), measured->tried.end());
    other->lost_runners.insert(measured->lost_runners.begin(), measured->lost_runners.end());
    SaveAttempts(*other);
    Enqueue(other, /*in_front=*/true);
    any = true;
  }
  return any;
}

Tracker::Impl::RequestPtr Tracker::Impl::Heir(const RequestPtr& request) const {
  const auto found = groups_.find(request->share_key);
  if (request->share_key.empty() || found == groups_.end() || found->second.measuring != request) return nullptr;
  for (const RequestPtr& other : found->second.members)
    if (other->parked) return other;
  return nullptr;
}

// The worker goes on with the program, which is the same; whose id the lease has is known here alone.
void Tracker::Impl::HandOver(Session& session, uint64_t lease, const RequestPtr& heir) {
  const RequestPtr before = session.leases.at(lease).request;
  groups_.at(before->share_key).measuring = heir;
  heir->parked = false;
  heir->lease = lease;
  heir->session = session.id;
  heir->waited = SecondsBetween(heir->submitted, Now());
  heir->tried.insert(before->tried.begin(), before->tried.end());
  ++heir->attempts;
  session.leases.at(lease).request = heir;
  SaveLease(session, lease);
  LogTrial(LogLevel::kDebug, "trial_handed_over", *heir, {{"lease", std::to_string(lease)}});
}

bool Tracker::Impl::SpeaksFor(const Request& request, const v1::MeasureResult& result, double race_seconds) {
  if (result.has_cancelled() || IsInfrastructure(result)) return false;
  if (!result.timing().stopped_early()) return true;
  // Slower than that is slower than anything faster.
  return request.message.has_best_seconds() && request.message.best_seconds() <= race_seconds;
}

// Who has had it and asks again wants another measurement.
bool Tracker::Impl::TakeRecent(const RequestPtr& request) {
  const auto found = recent_.find(request->share_key);
  if (request->share_key.empty() || found == recent_.end() || found->second.until <= Now()) return false;
  Recent& recent = found->second;
  if (!SpeaksFor(*request, recent.result, recent.race_seconds)) return false;
  if (!recent.had_by.insert(request->queue->number).second) return false;
  ++shared_;
  LogTrial(LogLevel::kDebug, "trial_shared", *request, {});
  Part(request);
  Deliver(request, recent.result);
  return true;
}

void Tracker::Impl::KeepRecent(const RequestPtr& request, const v1::MeasureResult& result, double race_seconds) {
  if (options_.share_recent.count() <= 0 || request->share_key.empty() || !result.has_timing() ||
      IsInfrastructure(result)) {
    return;
  }
  const auto session = sessions_.find(request->session);
  Recent& recent = recent_[request->share_key];
  if (recent.had_by.empty()) recent_keys_.push_back(request->share_key);
  recent.result = result;
  recent.race_seconds = race_seconds;
  recent.until = Now() + options_.share_recent;
  recent.worker_id = session == sessions_.end() ? "" : session->second->status.worker_id();
  recent.had_by = {request->queue->number};
  if (recent_keys_.size() > options_.max_recent) {
    recent_.erase(recent_keys_.front());
    recent_keys_.pop_front();
  }
}

// One that was measured again stays where it was in the line, and may hold up those behind it for a while.
void Tracker::Impl::ForgetRecent(Clock::time_point now) {
  while (!recent_keys_.empty()) {
    const auto oldest = recent_.find(recent_keys_.front());
    if (oldest != recent_.end() && oldest->second.until > now) return;
    if (oldest != recent_.end()) recent_.erase(oldest);
    recent_keys_.pop_front();
  }
}

void Tracker::Impl::Finish(RequestPtr request, v1::MeasureResult result, double race_seconds) {
  const auto entry = request->queue->unfinished.find(request->message.id());
  if (entry == request->queue->unfinished.end() || entry->second != request) return;
  std::vector<RequestPtr> others;
  if (const auto group = groups_.find(request->share_key);
      !request->share_key.empty() && group != groups_.end() && group->second.measuring == request) {
    for (const RequestPtr& other : group->second.members)
      if (other->parked && SpeaksFor(*other, result, race_seconds)) others.push_back(other);
  }
  result.mutable_times()->set_queued_seconds(request->waited);
  CountOutcome(result);
  KeepRecent(request, result, race_seconds);
  for (const RequestPtr& other : others) {
    ++shared_;
    if (const auto recent = recent_.find(other->share_key); recent != recent_.end())
      recent->second.had_by.insert(other->queue->number);
    Part(other);
    LogTrial(LogLevel::kDebug, "trial_shared", *other, {{"of_job", request->queue->job()}});
    Deliver(other, result);
  }
  const bool waits = Unpark(request);  // those that it says nothing for
  Part(request);
  Deliver(request, std::move(result));
  if (waits) Dispatch(request->device_class);
}

}  // namespace diapason
