#include "worker/tracker/recent_outcomes.h"

#include "worker/process/convert.h"

namespace diapason::tracker {

bool SpeaksFor(const Request& request, const v1::MeasureResult& result, double race_seconds) {
  if (result.has_cancelled() || IsInfrastructure(result)) return false;
  if (!result.timing().stopped_early()) return true;
  // Slower than that is slower than anything faster.
  return request.message.has_best_seconds() && request.message.best_seconds() <= race_seconds;
}

const v1::MeasureResult* RecentOutcomes::Take(const Request& request) {
  const auto found = recent_.find(request.share_key);
  if (request.share_key.empty() || found == recent_.end() || found->second.until <= clock_.Now()) return nullptr;
  Recent& recent = found->second;
  if (!SpeaksFor(request, recent.result, recent.race_seconds)) return nullptr;
  if (!recent.had_by.insert(request.queue->number).second) return nullptr;
  return &recent.result;
}

void RecentOutcomes::Keep(const Request& request, const std::string& worker_id, const v1::MeasureResult& result,
                          double race_seconds) {
  if (options_.share_recent.count() <= 0 || request.share_key.empty() || !result.has_timing() ||
      IsInfrastructure(result)) {
    return;
  }
  Recent& recent = recent_[request.share_key];
  if (recent.had_by.empty()) keys_.push_back(request.share_key);
  recent.result = result;
  recent.race_seconds = race_seconds;
  recent.until = clock_.Now() + options_.share_recent;
  recent.worker_id = worker_id;
  recent.had_by = {request.queue->number};
  if (keys_.size() > options_.max_recent) {
    recent_.erase(keys_.front());
    keys_.pop_front();
  }
}

void RecentOutcomes::NoteHad(const Request& request) {
  if (const auto recent = recent_.find(request.share_key); recent != recent_.end())
    recent->second.had_by.insert(request.queue->number);
}

void RecentOutcomes::Distrust(const std::string& worker_id) {
  for (auto& [key, recent] : recent_)
    if (recent.worker_id == worker_id) recent.until = {};
}

// One that was measured again stays where it was in the line, and may hold up those behind it for a while.
void RecentOutcomes::Forget(Clock::time_point now) {
  while (!keys_.empty()) {
    const auto oldest = recent_.find(keys_.front());
    if (oldest != recent_.end() && oldest->second.until > now) return;
    if (oldest != recent_.end()) recent_.erase(oldest);
    keys_.pop_front();
  }
}

}  // namespace diapason::tracker
