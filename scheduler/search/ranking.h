// Measured candidates of a task, ranked: of all spaces and of each.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"

namespace diapason {

struct MeasuredCandidate {
  int space;
  std::vector<int32_t> configuration;
  double seconds;  // 0: fails
  uint64_t hash;
};

// How the candidates of one space did.
struct SpaceResults {
  int failed = 0;
  double best_seconds = 0;                     // 0: none ran
  std::vector<const MeasuredCandidate*> best;  // its fastest, the fastest first, up to kBestOfSpace

  // All of several tries failed: not worth more than a token share of the samples.
  bool gives_up() const;
};

// Does not depend on the order in which results were added. Not safe from several threads.
class Ranking {
 public:
  // Of the fastest of each space, so many are at hand.
  static constexpr uint32_t kBestOfSpace = 3;

  explicit Ranking(int spaces) : spaces_(spaces) {}

  // A result, or another one of the same candidate, which replaces it. Shows after Update.
  void Add(MeasuredCandidate candidate);
  void Update();

  // As of the last Update; pointers are valid as long as this.
  // What ran, the fastest first.
  const std::vector<const MeasuredCandidate*>& fastest() const { return fastest_; }
  double best_seconds() const { return fastest_.empty() ? 0 : fastest_.front()->seconds; }
  const SpaceResults& space(int i) const { return spaces_[i]; }
  // Share of the samples that each space deserves: a third is dealt out evenly, the rest by how near the best of the
  // space comes to the best of the task (squared). A space without a result counts as the best one would.
  std::vector<double> SampleShares() const;

 private:
  std::map<uint64_t, MeasuredCandidate> measured_;  // by hash
  std::vector<const MeasuredCandidate*> fastest_;
  std::vector<SpaceResults> spaces_;
  bool is_old_ = false;
};

}  // namespace diapason
