// Which candidates of a task a search must not propose again, and how many trials each space had.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace diapason {

// Candidates by hash (CandidateHash). Adding one that is known changes nothing. Not safe from several threads.
class Proposals {
 public:
  explicit Proposals(int spaces) : trials_(spaces) {}

  // A candidate of a space that no longer exists: a trial of none.
  void AddKnown(uint64_t hash) { known_.insert(hash); }
  // A trial of the space whose result is there.
  void AddMeasured(int space, uint64_t hash) {
    if (known_.insert(hash).second) ++trials_[space];
  }
  // A trial of the space whose result is to come.
  void AddProposed(int space, uint64_t hash) {
    if (!known_.insert(hash).second) return;
    proposed_space_[hash] = space;
    ++trials_[space];
  }
  // May be proposed again. The trial of a candidate that AddProposed added is taken back.
  void Release(uint64_t hash) {
    if (known_.erase(hash) == 0) return;
    const auto found = proposed_space_.find(hash);
    if (found != proposed_space_.end()) --trials_[found->second];
  }

  bool contains(uint64_t hash) const { return known_.contains(hash); }
  int trials(int space) const { return trials_[space]; }

 private:
  absl::flat_hash_set<uint64_t> known_;
  absl::flat_hash_map<uint64_t, int> proposed_space_;
  std::vector<int> trials_;  // of each space
};

// How much faster the best candidate of a space may still become after so many trials, at best, as the logarithm of
// speed: falls with their number.
double StillToCome(int trials);

}  // namespace diapason
