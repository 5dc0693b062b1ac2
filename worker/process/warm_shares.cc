#include "worker/process/warm_shares.h"

#include <algorithm>

namespace diapason {
namespace {

constexpr double kAboutAsFast = 1.02;
// Tasks of a few networks.
constexpr size_t kMostTasks = 1000;

}  // namespace

void WarmShares::Add(uint64_t task, double seconds, double warm_seconds) {
  if (seconds <= 0 || warm_seconds <= 0) return;
  if (shares_.size() >= kMostTasks && !shares_.contains(task)) shares_.clear();
  const Share added{seconds, std::min(1.0, warm_seconds / seconds)};
  Share& known = shares_.try_emplace(task, added).first->second;
  if (seconds > kAboutAsFast * known.seconds) return;
  if (kAboutAsFast * seconds < known.seconds) known = added;
  known.seconds = std::min(known.seconds, seconds);
  known.share = std::max(known.share, added.share);
}

double WarmShares::Of(uint64_t task, double best_seconds) const {
  const auto known = shares_.find(task);
  return known != shares_.end() && kAboutAsFast * best_seconds >= known->second.seconds ? known->second.share : 1;
}

}  // namespace diapason
