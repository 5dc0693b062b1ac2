// The time of a tuning run, and its pace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scheduler/tuner.h"

namespace diapason::tuning {

class RunClock {
 public:
  explicit RunClock(const TunerOptions& options) : options_(options) {}

  void Start() { started_ = last_outcome_ = options_.clock(); }
  double Seconds() const { return options_.clock() - started_; }
  // Whether all but the last `reserve` seconds of the time are over.
  bool OutOfTime(double reserve) const;

  // So many outcomes are here; what each of them took: when the workers are busy, the time between it and the one
  // before.
  double TakeOutcomes(size_t count);
  void CountTrial(double seconds) { trials_.Add(seconds); }
  void CountVerification(double seconds) { verifications_.Add(seconds); }
  double trial_seconds() const { return trials_.mean(); }
  // As a trial's while none was counted.
  double verification_seconds() const { return verifications_.outcomes > 0 ? verifications_.mean() : trials_.mean(); }

  // No outcome is due now.
  void Rest() { last_outcome_ = options_.clock(); }
  bool Stalled() const { return options_.clock() - last_outcome_ > options_.stall_s; }

 private:
  struct Pace {
    double seconds = 0;
    int64_t outcomes = 0;
    double mean() const { return outcomes > 0 ? seconds / static_cast<double>(outcomes) : 0; }
    void Add(double one) {
      seconds += one;
      ++outcomes;
    }
  };

  const TunerOptions& options_;
  double started_ = 0, last_outcome_ = 0;
  Pace trials_, verifications_;
};

}  // namespace diapason::tuning
