#include "worker/pipeline/race_times.h"

#include <algorithm>

#include "worker/process/convert.h"

namespace diapason::pipeline {
namespace {

constexpr size_t kMaxBestTimes = 4096;

std::string RaceKey(const Job& job, const std::string& model) {
  return model + "\n" + job.shared_target + "\n" + job.request.workload();
}

}  // namespace

void RaceTimes::Note(const Job& job, const std::string& model) {
  const Timing timing = FromProto(job.result.timing());
  if (timing.samples.empty() || timing.stopped_early) return;
  if (best_.size() >= kMaxBestTimes) best_.clear();
  const double median = MedianSeconds(timing);
  auto [entry, added] = best_.emplace(RaceKey(job, model), median);
  entry->second = std::min(entry->second, median);
}

std::optional<double> RaceTimes::BestFor(const Job& job, const std::string& model) const {
  std::optional<double> best;
  if (job.request.has_best_seconds() && job.request.best_seconds() > 0) best = job.request.best_seconds();
  if (auto known = best_.find(RaceKey(job, model)); known != best_.end())
    best = std::min(best.value_or(known->second), known->second);
  return best;
}

}  // namespace diapason::pipeline
