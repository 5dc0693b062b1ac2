#include "api/spread_meter.h"

#include <gtest/gtest.h>

namespace diapason::api {
namespace {

TEST(SpreadMeter, KnowsTheMedianSpreadOfWholeMeasurements) {
  SpreadMeter meter;
  Timing timing;
  for (const double most : {1.1, 1.2, 1.3, 1.4}) {
    timing.samples = {1, 1, most};
    meter.Add(timing);
  }
  EXPECT_EQ(meter.Typical(), 0) << "too few to tell";
  timing.samples = {1, 1, 9};
  timing.stopped_early = true;
  meter.Add(timing);
  timing.stopped_early = false;
  timing.samples = {1};
  meter.Add(timing);
  EXPECT_EQ(meter.Typical(), 0) << "these tell nothing";
  timing.samples = {1, 1, 5};
  meter.Add(timing);
  EXPECT_NEAR(meter.Typical(), 0.3, 1e-12);
}

}  // namespace
}  // namespace diapason::api
