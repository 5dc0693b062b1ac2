// What sanitizers cost: bounds on time and memory that hold without them are multiplied by these.
#pragma once

#include "absl/base/config.h"

namespace diapason {

#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
inline constexpr int kTimesSlower = 12;
inline constexpr int kTimesLarger = 3;
#else
inline constexpr int kTimesSlower = 1;
inline constexpr int kTimesLarger = 1;
#endif

}  // namespace diapason
