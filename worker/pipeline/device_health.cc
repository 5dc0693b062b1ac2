#include "worker/pipeline/device_health.h"

#include <algorithm>
#include <cmath>

#include "worker/process/convert.h"

namespace diapason::pipeline {
namespace {

constexpr int kMaxFailedProbes = 2;
constexpr double kLongestPause = 600;

}  // namespace

std::string WhyProbeFailed(const v1::MeasureResult& result) {
  return "a health probe failed (" + result.error().kind() + "): " + result.error().text();
}

void DeviceHealth::Started() {
  if (suspect_) return;
  state_ = v1::DEVICE_STATE_READY;
  text_.clear();
}

void DeviceHealth::Restarts(const std::string& why) {
  state_ = v1::DEVICE_STATE_RESTARTING;
  text_ = why;
}

void DeviceHealth::Suspect(const std::string& why, Instant now) {
  if (in_quarantine()) return;
  if (!suspect_) failed_probes_ = 0;
  suspect_ = true;
  probe_at_ = now;
  Restarts(why);
}

void DeviceHealth::Quarantine(const std::string& why, bool starts, Instant now) {
  suspect_ = true;
  state_ = v1::DEVICE_STATE_QUARANTINED;
  text_ = why;
  const double pause = options_.first_probe_again_seconds * std::pow(2.0, std::min(quarantines_++, 20));
  probe_at_ = starts ? now + Seconds(std::min(pause, kLongestPause)) : now;
}

std::optional<Instant> DeviceHealth::next_probe() const {
  if (suspect_ || options_.reference_interval_seconds > 0) return probe_at_;
  return std::nullopt;
}

bool DeviceHealth::ProbeEnded(const v1::MeasureResult& result, bool built, Instant now) {
  probe_at_ = now + Seconds(options_.reference_interval_seconds);
  if (!result.has_error() || !built) {
    if (result.has_timing() && result.timing().samples_size() > 0)
      reference_seconds_ = MedianSeconds(FromProto(result.timing()));
    suspect_ = false;
    failed_probes_ = quarantines_ = 0;
    Started();
    return true;
  }
  Suspect(WhyProbeFailed(result), now);
  ++failed_probes_;
  return false;
}

bool DeviceHealth::failed() const { return failed_probes_ >= kMaxFailedProbes; }

}  // namespace diapason::pipeline
