// Candidates that are about as fast as the best of their task, and their measurement in turns.
//
// The clock of a device drifts (power, heat, other programs) by more than such candidates differ, so that times of
// different minutes do not tell which is the fastest. In turns, each is measured once before any is measured again, and
// every other turn in reverse order: what drifts evenly then adds the same to the medians of all.
#pragma once

#include <vector>

#include "scheduler/trial_results.h"

namespace diapason::tuning {

// What is slower than the best by more than this is none of its contenders.
inline constexpr double kContenderRatio = 1.05;

struct ContenderOptions {
  int most = 1;       // the best included
  int confirmed = 0;  // results with more samples than that were measured again before
  int attempts = 0;   // results whose verification was tried so often and did not succeed are left out
};

// Indices of results that ran, of the best first. Of those that were measured again before, the fastest comes next, so
// that it is compared with what is said to be faster; then those that ran in full, then those that were stopped early,
// which a drift may have made look slow. The fastest of each come first. REQUIRES: best >= 0.
std::vector<int> ContendersOf(const TrialResults& results, int best, const ContenderOptions& options);

class Turns {
 public:
  // One candidate alone is measured once, with `samples` samples; each of several four times, with more than twice as
  // many in all: a record keeps the samples of before too, and the new ones are to decide its median.
  // REQUIRES: there are candidates; samples > 0.
  Turns(std::vector<int> contenders, int samples);

  const std::vector<int>& contenders() const { return contenders_; }
  bool alone() const { return contenders_.size() == 1; }
  // Of each measurement.
  int samples() const { return samples_; }
  // Which contender is measured when.
  std::vector<int> Order() const;

  // Takes the samples of a measurement of a contender; none: it failed.
  void Add(int contender, const std::vector<double>& samples);
  // Whether all measurements were taken.
  bool complete() const { return left_ == 0; }
  // All samples of a contender; none if one of its measurements failed.
  std::vector<double> SamplesOf(int contender) const;

 private:
  struct Taken {
    std::vector<double> samples;
    bool failed = false;
  };

  std::vector<int> contenders_;
  int turns_, samples_;
  std::vector<Taken> taken_;  // of each contender
  int left_;                  // measurements to be taken
};

}  // namespace diapason::tuning
