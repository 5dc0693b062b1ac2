// The median of a few numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace diapason {

// The middle value, or the mean of the two middle ones. REQUIRES: values is not empty.
inline double Median(std::vector<double> values) {
  DIAPASON_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace diapason
