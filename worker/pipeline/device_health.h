// The health of a device: probes after what may have left it sick, quarantine, and the reference kernel.
#pragma once

#include <optional>
#include <string>

#include "diapason/v1/process.pb.h"
#include "worker/pipeline/pipeline.h"
#include "worker/pipeline/process_slot.h"

namespace diapason::pipeline {

class DeviceHealth {
 public:
  explicit DeviceHealth(const PipelineOptions& options) : options_(options) {}

  v1::DeviceState state() const { return state_; }
  const std::string& text() const { return text_; }
  bool suspect() const { return suspect_; }  // to be probed before other work
  bool in_quarantine() const { return state_ == v1::DEVICE_STATE_QUARANTINED; }
  double reference_seconds() const { return reference_seconds_; }

  // Its runner has started, or has ended (`why`: the reason, if it is to be reported).
  void Started();
  void Restarts() { state_ = v1::DEVICE_STATE_RESTARTING; }
  void Restarts(const std::string& why);
  // No other work until a probe says that the device is well.
  void Suspect(const std::string& why, Instant now);
  // `starts`: whether its runner does; one that does not is started again by its slot, and probed as soon as it does.
  void Quarantine(const std::string& why, bool starts, Instant now);

  // When the next probe is due; nothing where none is.
  std::optional<Instant> next_probe() const;
  // What came of a probe. True when the device is well; else it is suspect. `built`: without a program there is nothing
  // to hold against the device.
  bool ProbeEnded(const v1::MeasureResult& result, bool built, Instant now);
  // Too many probes failed in a row: it is to be in quarantine.
  bool failed() const;

 private:
  const PipelineOptions& options_;
  v1::DeviceState state_ = v1::DEVICE_STATE_RESTARTING;
  std::string text_;
  bool suspect_ = false;
  int failed_probes_ = 0;
  int quarantines_ = 0;  // in a row: how often it was found sick again
  Instant probe_at_{};   // suspects: not before; others: when the reference is due
  double reference_seconds_ = 0;
};

// "a health probe failed (run_crash): ...".
std::string WhyProbeFailed(const v1::MeasureResult& result);

}  // namespace diapason::pipeline
