// What candidates take with warm caches, as a share of what they take as in a network.
#pragma once

#include <cstdint>
#include <map>

namespace diapason {

// Of tasks, by the best candidates that were timed in full. A task is any number that stands for its workload and how
// its candidates are timed. One thread at a time.
class WarmShares {
 public:
  // A candidate took `seconds`, and `warm_seconds` with warm caches and nothing in front of it. Times of zero say
  // nothing.
  void Add(uint64_t task, double seconds, double warm_seconds);
  // The largest share of the candidates that are about as fast as the best, in (0, 1]; 1 where `best_seconds` is less
  // than any known one took.
  double Of(uint64_t task, double best_seconds) const;

 private:
  struct Share {
    double seconds = 0;  // of the fastest
    double share = 1;
  };
  std::map<uint64_t, Share> shares_;
};

}  // namespace diapason
