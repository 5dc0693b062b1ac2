// All candidates that one round of a search looks at, in columns; filled generation by generation, evaluated in
// batches.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "costmodel/cost_model.h"
#include "scheduler/space.h"

namespace diapason {

class Population {
 public:
  explicit Population(const TaskSpace* spaces);

  // Forgets all candidates, keeps the memory.
  void Clear();
  int size() const { return static_cast<int>(space_.size()); }

  int space(int i) const { return space_[i]; }
  absl::Span<const int32_t> configuration(int i) const {
    return {configuration_.data() + static_cast<size_t>(i) * stride_, static_cast<size_t>(parameters_[space_[i]])};
  }
  uint64_t hash(int i) const { return hash_[i]; }
  double analytic_seconds(int i) const { return analytic_[i]; }
  // Higher is better; -infinity for an illegal candidate.
  double score(int i) const { return score_[i]; }

  // Room for `count` candidates behind the others, to be filled by Set from any thread, each slot once (or never).
  void Extend(int count);
  void Set(int slot, int space, absl::Span<const int32_t> configuration);
  // One more candidate behind the others.
  void Append(int space, absl::Span<const int32_t> configuration) {
    Extend(1);
    Set(size() - 1, space, configuration);
  }
  // Closes the slots behind `first`: drops those not set and those that are there already, evaluates and scores the
  // rest. Without a ranker the score is the logarithm of the analytic speed.
  void Evaluate(int first, const Ranker* ranker, uint64_t task, int threads);

 private:
  // Moves what is new to the front and drops the rest.
  void Compact(int first);
  void EvaluateChunk(int begin, int end, const Ranker* ranker, uint64_t task);

  const TaskSpace* const spaces_;
  std::vector<int> parameters_;  // of each space
  int stride_ = 0;               // most parameters of any space

  std::vector<int> space_;  // -1: not set
  std::vector<int32_t> configuration_;
  std::vector<uint64_t> hash_;
  std::vector<double> analytic_, score_;
  absl::flat_hash_set<uint64_t> seen_;
};

}  // namespace diapason
