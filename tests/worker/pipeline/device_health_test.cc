// Suspects, probes and quarantine.
#include "worker/pipeline/device_health.h"

#include <gtest/gtest.h>

#include <optional>

namespace diapason::pipeline {
namespace {

class DeviceHealthTest : public testing::Test {
 protected:
  static v1::MeasureResult Failed() {
    v1::MeasureResult result;
    result.mutable_error()->set_kind("run_crash");
    result.mutable_error()->set_text("it died");
    return result;
  }
  PipelineOptions options_;
  DeviceHealth health_{options_};
  const Instant now_{};
};

TEST_F(DeviceHealthTest, ASuspectIsProbedBeforeItIsReady) {
  EXPECT_EQ(health_.next_probe(), std::nullopt);
  health_.Started();
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_READY);
  health_.Suspect("it hung", now_);
  health_.Started();  // its runner does again
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_RESTARTING);
  EXPECT_EQ(health_.text(), "it hung");
  EXPECT_EQ(health_.next_probe(), now_);
  v1::MeasureResult well;
  well.mutable_timing()->add_samples(1e-3);
  EXPECT_TRUE(health_.ProbeEnded(well, true, now_));
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_READY);
  EXPECT_EQ(health_.reference_seconds(), 1e-3);
}

TEST_F(DeviceHealthTest, TwoFailedProbesAreTooMany) {
  EXPECT_FALSE(health_.ProbeEnded(Failed(), true, now_));
  EXPECT_EQ(health_.text(), "a health probe failed (run_crash): it died");
  EXPECT_FALSE(health_.failed());
  EXPECT_FALSE(health_.ProbeEnded(Failed(), true, now_));
  EXPECT_TRUE(health_.failed());
}

TEST_F(DeviceHealthTest, AProbeThatWasNotBuiltSaysNothing) {
  EXPECT_TRUE(health_.ProbeEnded(Failed(), /*built=*/false, now_));
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_READY);
}

TEST_F(DeviceHealthTest, InQuarantineItIsProbedLaterAndLater) {
  options_.first_probe_again_seconds = 100;
  for (const double pause : {100, 200, 400, 600, 600}) {
    health_.Quarantine("sick", true, now_);
    EXPECT_TRUE(health_.in_quarantine());
    EXPECT_EQ(health_.next_probe(), now_ + Seconds(pause));
  }
  health_.Suspect("again", now_);
  EXPECT_EQ(health_.text(), "sick");
  health_.Quarantine("it does not start", false, now_);
  EXPECT_EQ(health_.next_probe(), now_);  // as soon as it does
}

TEST_F(DeviceHealthTest, TheReferenceIsTimedNowAndThen) {
  options_.reference_interval_seconds = 60;
  health_.ProbeEnded({}, true, now_);
  EXPECT_EQ(health_.next_probe(), now_ + Seconds(60));
}

}  // namespace
}  // namespace diapason::pipeline
