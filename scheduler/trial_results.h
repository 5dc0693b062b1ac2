// The measured candidates of a task, and which of them are the best. Not safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "db/history.h"
#include "scheduler/warm_start.h"

namespace diapason {

// A measured candidate of a task.
struct TrialResult {
  int64_t record = 0;  // id in the history
  uint64_t hash = 0;
  int space = -1;  // -1: of a space that this version does not have
  std::vector<int32_t> configuration;
  std::string schedule;  // serialised; what is verified
  std::string sketch;
  double seconds = 0;  // 0: failed
  bool stopped_early = false;
  int samples = 0;  // that `seconds` is the median of
  Verified verified = Verified::kUnknown;
  int verify_attempts = 0;

  bool ran() const { return seconds > 0 && !IsRefuted(verified); }
};

class TrialResults {
 public:
  // Returns its index.
  int Add(TrialResult result);
  // Replaces the time of a result: the median of so many samples.
  void SetTime(int index, double seconds, int samples);
  // Stores whether the verification of a result succeeded.
  void SetVerdict(int index, bool ok);
  void CountVerifyAttempt(int index) { ++results_[index].verify_attempts; }

  const TrialResult& operator[](int index) const { return results_[index]; }
  size_t size() const { return results_.size(); }
  bool empty() const { return results_.empty(); }
  // Index of the fastest result that is not refuted, or of the fastest verified one; results that were stopped early
  // come after all others. -1: none.
  int Best(bool verified_only) const { return best_[verified_only ? 1 : 0]; }
  double BestSeconds() const { return best_[0] < 0 ? 0 : results_[best_[0]].seconds; }  // 0: none
  int64_t failed() const { return failed_; }                                            // refuted ones included
  // The fastest candidates, of several sketches if there are.
  std::vector<Tuned> Fastest() const;

 private:
  void FindBest();
  bool Faster(int a, int b) const;

  std::vector<TrialResult> results_;
  int best_[2] = {-1, -1};  // of all, of those verified
  int64_t failed_ = 0;
};

}  // namespace diapason
