#include "api/spread_meter.h"

#include <algorithm>

namespace diapason::api {
namespace {

constexpr size_t kFewestTimings = 5;

}  // namespace

void SpreadMeter::Add(const Timing& timing) {
  if (timing.stopped_early || timing.samples.size() < 2) return;
  const auto [least, most] = std::minmax_element(timing.samples.begin(), timing.samples.end());
  spreads_.push_back((*most - *least) / MedianSeconds(timing));
}

double SpreadMeter::Typical() const {
  if (spreads_.size() < kFewestTimings) return 0;
  std::vector<double> sorted = spreads_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace diapason::api
