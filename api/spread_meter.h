// How far the samples of measurements lie apart.
#pragma once

#include <vector>

#include "compiler/runtime/outcome.h"

namespace diapason::api {

// One thread at a time.
class SpreadMeter {
 public:
  // Of a measurement in full: those stopped early, or of one sample, tell nothing.
  void Add(const Timing& timing);
  // Largest less least sample over the median, of the median measurement; 0: there are fewer than five.
  double Typical() const;

 private:
  std::vector<double> spreads_;
};

}  // namespace diapason::api
