// Rates of devices, and their distance from their peers.
#include "worker/tracker/device_counts.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using DeviceCountsTest = PartsTest;

TEST_F(DeviceCountsTest, RatesAreOfTheLastMinute) {
  Session& session = AddSession("w");
  EXPECT_EQ(RatesOf(session, "cuda:0").runs(), 0u);
  for (int i = 0; i <= 20; ++i) {
    NoteCounts(session, Statistics(10 * static_cast<uint64_t>(i), 2.5 * i), now_);
    now_ += std::chrono::seconds(5);
  }
  const v1::DeviceRates rates = RatesOf(session, "cuda:0");
  EXPECT_EQ(rates.runs(), 200u);
  EXPECT_DOUBLE_EQ(rates.trials_per_second(), 2);
  EXPECT_DOUBLE_EQ(rates.utilisation(), 0.5);
}

TEST_F(DeviceCountsTest, ADeviceThatDriftsIsTakenOutAndBackIn) {
  options_.exclude_drift = 1.5;
  for (const std::string name : {"a", "b", "c"}) NoteCounts(AddSession(name), Statistics(1, 1, 1e-3), now_);
  Session& slow = *workers_.Find("c");
  NoteCounts(slow, Statistics(2, 1, 2e-3), now_);
  EXPECT_DOUBLE_EQ(DriftOf(slow, slow.worker.devices(0), ReferenceTimes(workers_.sessions()), 3), 2);
  EXPECT_EQ(DriftOf(slow, slow.worker.devices(0), ReferenceTimes(workers_.sessions()), 4), 0);
  drift_.Look(now_);
  EXPECT_EQ(slow.excluded, std::set<std::string>{"cuda:0"});
  EXPECT_EQ(workers_.Serving(kClass), 2u);
  NoteCounts(slow, Statistics(3, 1, 1e-3), now_);
  drift_.Look(now_ + std::chrono::seconds(2));
  EXPECT_TRUE(slow.excluded.empty());
  EXPECT_EQ(workers_.Serving(kClass), 3u);
}

}  // namespace
}  // namespace diapason::tracker
