#include "worker/tracker/lines.h"

#include <algorithm>

namespace diapason::tracker {

void Lines::Put(const RequestPtr& request, bool in_front) const {
  request->lease = 0;
  request->session.clear();
  std::deque<RequestPtr>& line = request->queue->pending[request->device_class];
  in_front ? line.push_front(request) : line.push_back(request);
}

void Lines::Remove(const RequestPtr& request) const {
  if (request->lease != 0 || request->parked) return;
  const auto line = request->queue->pending.find(request->device_class);
  if (line == request->queue->pending.end()) return;
  const auto place = std::find(line->second.begin(), line->second.end(), request);
  if (place != line->second.end()) line->second.erase(place);
  if (line->second.empty()) request->queue->pending.erase(line);
}

bool Lines::Has(const std::string& device_class) const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const auto& entry) { return entry.second->pending.contains(device_class); });
}

size_t Lines::Count(const std::string& device_class) const {
  size_t pending = 0;
  for (const auto& [id, queue] : queues_) {
    if (auto line = queue->pending.find(device_class); line != queue->pending.end()) pending += line->second.size();
  }
  return pending;
}

RequestPtr Lines::Take(const std::string& device_class, const Labels& labels,
                       const std::function<bool(const Request& request)>& may_take) const {
  Queue* best = nullptr;
  size_t best_at = 0;
  for (const auto& [id, queue] : queues_) {
    auto line = queue->pending.find(device_class);
    if (line == queue->pending.end() || !Carries(labels, queue->labels())) continue;
    bool better = best == nullptr || queue->priority() > best->priority() ||
                  (queue->priority() == best->priority() && queue->pass < best->pass);
    if (!better) continue;
    for (size_t i = 0; i < line->second.size(); ++i) {
      if (!may_take(*line->second[i])) continue;
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

}  // namespace diapason::tracker
