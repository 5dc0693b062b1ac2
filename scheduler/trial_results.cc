#include "scheduler/trial_results.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace diapason {

int TrialResults::Add(TrialResult result) {
  const int index = static_cast<int>(results_.size());
  results_.push_back(std::move(result));
  if (!results_[index].ran()) {
    ++failed_;
    return index;
  }
  if (Faster(index, best_[0])) best_[0] = index;
  if (results_[index].verified == Verified::kOk && Faster(index, best_[1])) best_[1] = index;
  return index;
}

void TrialResults::SetTime(int index, double seconds, int samples) {
  TrialResult& result = results_[index];
  result.seconds = seconds;
  result.stopped_early = false;
  result.samples = samples;
  FindBest();
}

void TrialResults::SetVerdict(int index, bool ok) {
  TrialResult& result = results_[index];
  const bool ran = result.ran();
  result.verified = ok ? Verified::kOk : Verified::kFailed;
  if (ok && Faster(index, best_[1])) best_[1] = index;
  if (!ok) {
    failed_ += ran ? 1 : 0;
    FindBest();
  }
}

void TrialResults::FindBest() {
  best_[0] = best_[1] = -1;
  for (int i = 0; i < static_cast<int>(results_.size()); ++i) {
    if (!results_[i].ran()) continue;
    if (Faster(i, best_[0])) best_[0] = i;
    if (results_[i].verified == Verified::kOk && Faster(i, best_[1])) best_[1] = i;
  }
}

std::vector<Tuned> TrialResults::Fastest() const {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(results_.size()); ++i)
    if (results_[i].ran() && results_[i].space >= 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [this](int a, int b) {
    return std::make_tuple(results_[a].stopped_early, results_[a].seconds, results_[a].hash) <
           std::make_tuple(results_[b].stopped_early, results_[b].seconds, results_[b].hash);
  });
  FewTuned fastest;
  for (size_t i = 0; i < order.size() && !fastest.full(); ++i)
    fastest.Offer(results_[order[i]].sketch, results_[order[i]].configuration);
  return fastest.tuned();
}

// Whether result a goes before result b, which may be -1.
bool TrialResults::Faster(int a, int b) const {
  if (b < 0) return true;
  return std::make_pair(results_[a].stopped_early, results_[a].seconds) <
         std::make_pair(results_[b].stopped_early, results_[b].seconds);
}

}  // namespace diapason
