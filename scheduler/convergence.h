// How the objective of a run fell as trials went on.
#pragma once

#include <cstdint>
#include <vector>

namespace diapason {

class Convergence {
 public:
  // The objective's value after so many trials, which only grow.
  void Add(int64_t trials, double value) { moments_.push_back({trials, value}); }
  // What was known of it is not true.
  void Forget() { moments_.clear(); }
  // Relative fall of the objective over the `window` trials up to `trials`; 1 where there is no value as old as that.
  double Fall(int64_t trials, int64_t window) const;

 private:
  struct Moment {
    int64_t trials;
    double value;
  };
  std::vector<Moment> moments_;
};

}  // namespace diapason
