#include "api/stop_relay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace diapason::api {
namespace {

bool ComesTrue(const std::atomic<bool>& flag) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!flag && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return flag;
}

TEST(StopRelay, TellsThatTheCallerStops) {
  std::atomic<bool> stop{false};
  const StopRelay relay(&stop);
  EXPECT_FALSE(*relay.flag());
  stop = true;
  EXPECT_TRUE(ComesTrue(*relay.flag()));
}

TEST(StopRelay, IsRaisedWithoutTheCaller) {
  std::atomic<bool> stop{false};
  for (const std::atomic<bool>* callers : {&stop, static_cast<std::atomic<bool>*>(nullptr)}) {
    StopRelay relay(callers);
    EXPECT_FALSE(*relay.flag());
    relay.Raise();
    EXPECT_TRUE(*relay.flag());
  }
  EXPECT_FALSE(stop);
}

}  // namespace
}  // namespace diapason::api
