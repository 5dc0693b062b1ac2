#include "worker/tracker/groups.h"

#include <openssl/sha.h>

#include <algorithm>
#include <map>
#include <utility>

namespace diapason::tracker {
namespace {

// Equal for requests that ask for the same measurement, and for no others: who submits must not be able to make a
// request that gets another one's outcome.
std::string ShareKey(const v1::MeasureRequest& request, const Labels& labels) {
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

void Groups::Join(const RequestPtr& request) {
  std::string key = ShareKey(request->message, request->queue->labels());
  Group& group = groups_[key];
  const bool asked = std::any_of(group.members.begin(), group.members.end(),
                                 [&](const RequestPtr& member) { return member->queue == request->queue; });
  if (asked) return;
  request->share_key = std::move(key);
  request->parked = group.measuring != nullptr;
  group.members.push_back(request);
}

void Groups::Part(const RequestPtr& request) {
  const auto found = groups_.find(request->share_key);
  if (request->share_key.empty() || found == groups_.end()) return;
  Group& group = found->second;
  std::erase(group.members, request);
  if (group.measuring == request) group.measuring = nullptr;
  if (group.members.empty()) groups_.erase(found);
  request->share_key.clear();
  request->parked = false;
}

void Groups::Park(const RequestPtr& measuring) {
  const auto found = groups_.find(measuring->share_key);
  if (measuring->share_key.empty() || found == groups_.end()) return;
  found->second.measuring = measuring;
  for (const RequestPtr& other : found->second.members) {
    if (other == measuring || other->parked || other->lease != 0) continue;
    lines_.Remove(other);
    other->parked = true;
  }
}

// What the lease cost is known of all: they asked for the same.
bool Groups::Unpark(const RequestPtr& measured) {
  const auto found = groups_.find(measured->share_key);
  if (measured->share_key.empty() || found == groups_.end() || found->second.measuring != measured) return false;
  found->second.measuring = nullptr;
  bool any = false;
  for (const RequestPtr& other : found->second.members) {
    if (!other->parked) continue;
    other->parked = false;
    other->tried.insert(measured->tried.begin(), measured->tried.end());
    other->lost_runners.insert(measured->lost_runners.begin(), measured->lost_runners.end());
    journal_.PutAttempts(*other);
    lines_.Put(other, /*in_front=*/true);
    any = true;
  }
  return any;
}

std::vector<RequestPtr> Groups::Parked(const RequestPtr& measuring) const {
  const auto found = groups_.find(measuring->share_key);
  if (measuring->share_key.empty() || found == groups_.end() || found->second.measuring != measuring) return {};
  std::vector<RequestPtr> parked;
  for (const RequestPtr& other : found->second.members)
    if (other->parked) parked.push_back(other);
  return parked;
}

void Groups::HandOver(const RequestPtr& measuring, const RequestPtr& heir) {
  groups_.at(measuring->share_key).measuring = heir;
  heir->parked = false;
}

}  // namespace diapason::tracker
