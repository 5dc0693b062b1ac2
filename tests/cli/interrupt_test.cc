#include "cli/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace diapason {
namespace {

TEST(InterruptGuard, SetsTheFlagInsteadOfEnding) {
  std::atomic<bool> stop{false};
  InterruptGuard guard(&stop);
  EXPECT_FALSE(guard.requested());
  raise(SIGINT);
  EXPECT_TRUE(guard.requested());
  EXPECT_TRUE(stop);
}

TEST(InterruptGuard, StartsAnew) {
  std::atomic<bool> stop{false};
  {
    InterruptGuard guard(&stop);
    raise(SIGTERM);
  }
  std::atomic<bool> other{false};
  InterruptGuard guard(&other);
  EXPECT_FALSE(guard.requested());
  EXPECT_FALSE(other);
}

TEST(InterruptGuardDeathTest, EndsAtTheSecondSignal) {
  auto twice = [] {
    std::atomic<bool> stop{false};
    InterruptGuard guard(&stop);
    raise(SIGINT);
    raise(SIGINT);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(130), "stopped at once by a second Ctrl-C");
}

TEST(InterruptGuardDeathTest, LeavesTheSecondSignalAsItWas) {
  auto twice = [] {
    std::atomic<bool> stop{false};
    InterruptGuard guard(&stop, SecondSignal::kAsBefore);
    raise(SIGTERM);
    if (!stop || !guard.requested()) _exit(1);
    raise(SIGTERM);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace diapason
