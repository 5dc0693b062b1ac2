#include "scheduler/tuning/requests.h"

#include <numeric>
#include <utility>

namespace diapason::tuning {

absl::Status Requests::Submit(std::vector<Pending> pending) {
  std::vector<MeasureRequest> requests;
  for (Pending& one : pending) {
    one.request.id = next_++;
    if (one.order == 0) one.order = one.proposal.order > 0 ? one.proposal.order : one.request.id;
    requests.push_back(one.request);
    pending_[one.request.id] = std::move(one);
  }
  if (requests.empty()) return absl::OkStatus();
  return measurer_.Submit(std::move(requests));
}

std::optional<Pending> Requests::Take(int64_t id) {
  auto node = pending_.extract(id);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

std::vector<int> Requests::GiveUpVerifications() {
  std::vector<int> tasks;
  std::erase_if(pending_, [&](const auto& entry) {
    const Pending& pending = entry.second;
    if (pending.result >= 0) tasks.push_back(pending.task);
    return pending.result >= 0;
  });
  return tasks;
}

int64_t Requests::waiting() const { return std::accumulate(waiting_.begin(), waiting_.end(), int64_t{0}); }

}  // namespace diapason::tuning
