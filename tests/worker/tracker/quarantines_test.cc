// Workers that get nothing for a while.
#include "worker/tracker/quarantines.h"

#include <gtest/gtest.h>

#include <chrono>

namespace diapason::tracker {
namespace {

TEST(Quarantines, EachIsTwiceAsLongUpToALimit) {
  TrackerOptions options;
  options.first_quarantine = std::chrono::seconds(60);
  options.longest_quarantine = std::chrono::seconds(200);
  Quarantines quarantines(options);
  Quarantines::Clock::time_point now{};
  for (const int seconds : {60, 120, 200, 200}) {
    EXPECT_EQ(quarantines.Begin("w", "why", now).until - now, std::chrono::seconds(seconds));
    EXPECT_EQ(quarantines.Find("w", now)->why, "why");
    now += std::chrono::seconds(seconds);
    EXPECT_EQ(quarantines.Find("w", now), nullptr);
  }
  EXPECT_EQ(quarantines.Find("another", now), nullptr);
  now += std::chrono::hours(2);
  quarantines.Forget(now);
  EXPECT_EQ(quarantines.Begin("w", "again", now).until - now, std::chrono::seconds(60));
}

}  // namespace
}  // namespace diapason::tracker
