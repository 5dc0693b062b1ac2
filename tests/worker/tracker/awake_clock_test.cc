// A clock that leaves out what the process slept through.
#include "worker/tracker/awake_clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace diapason::tracker {
namespace {

TEST(AwakeClock, LeavesOutWhatIsLongerThanAStall) {
  AwakeClock::Clock::time_point real{};
  TrackerOptions options;
  options.now = [&] { return real; };
  options.stall = std::chrono::seconds(2);
  const AwakeClock clock(options);
  const auto start = clock.Now();
  real += std::chrono::seconds(2);
  EXPECT_EQ(clock.Now() - start, std::chrono::seconds(2));
  real += std::chrono::hours(3);
  EXPECT_EQ(clock.Now() - start, std::chrono::seconds(2));
  real += std::chrono::seconds(1);
  EXPECT_EQ(clock.Now() - start, std::chrono::seconds(3));
}

}  // namespace
}  // namespace diapason::tracker
