// Spread of the samples of measurements, by which a busy machine is recognized.
#pragma once

#include <vector>

#include "compiler/runtime/outcome.h"

namespace diapason::api {

// Not thread-safe.
class SpreadMeter {
 public:
  // Ignores measurements that were stopped early or have one sample.
  void Add(const Timing& timing);
  // The median over the measurements of (largest - smallest) / median sample; 0: fewer than five measurements.
  double Typical() const;

 private:
  std::vector<double> spreads_;
};

}  // namespace diapason::api
