#include "cli/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace diapason {
namespace {

TEST(InterruptGuard, CountsTheFirstSignalInsteadOfEnding) {
  InterruptGuard guard;
  EXPECT_FALSE(InterruptGuard::requested());
  raise(SIGINT);
  EXPECT_TRUE(InterruptGuard::requested());
}

TEST(InterruptGuard, StartsAnew) {
  { InterruptGuard guard; raise(SIGINT); }
  InterruptGuard guard;
  EXPECT_FALSE(InterruptGuard::requested());
}

TEST(InterruptGuardDeathTest, EndsAtTheSecondSignal) {
  auto twice = [] {
    InterruptGuard guard;
    raise(SIGINT);
    raise(SIGINT);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(130), "stopped at once by a second Ctrl-C");
}

}  // namespace
}  // namespace diapason
