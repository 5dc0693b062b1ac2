// Timing an executable: how long one run of a program takes, as raw samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/cold_copies.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/outcome.h"

namespace diapason {

// Launches that come in front of runs while these are timed (TimingOptions::before), or others that take as long, in a
// plan of many of them: their own time, that is taken off. It is the least of several measurements: a disturbance while
// they are timed would otherwise shorten what comes behind them.
class TimedLaunches {
 public:
  // The launches can be run for as long as this lives. No launches take no time.
  static absl::StatusOr<TimedLaunches> Create(Device& device, const std::vector<Launch>& launches, double max_seconds);

  // Seconds of the launches, one after the other in a plan of many; what starting it takes is left out.
  double seconds() const { return seconds_; }
  // What they take now, before runs are timed: the least of two times.
  absl::Status TimeAgain();
  // Corrects samples from which seconds() were taken off, where the launches take less now.
  absl::Status Correct(Timing& timing);

 private:
  absl::StatusOr<double> Now();

  std::unique_ptr<Plan> plan_;
  double seconds_ = 0;
};

struct TimingOptions {
  int64_t number = 1;         // least runs of a sample; grown until the sample is min_repeat_ms long
  int repeat = 3;             // samples
  double min_repeat_ms = 20;  // least length of a sample
  // The best time known for the task, in seconds; 0: measure in full. A candidate whose median is above 1.15 times this
  // after the first few milliseconds, or above 1.015 times in a sample of 5 ms (on hosts, which are noisier, 1.04 times
  // in one of 20 ms), is stopped there, with those samples and stopped_early set: it cannot win, and its time is still
  // a label good enough for the cost model. What is that slow already with warm caches is not timed with cold ones, see
  // `cold` and `warm_share`. On hosts the least of the first samples is enough at 1.06 times, and one of them at twice:
  // what disturbs a sample makes it longer. On cuda a single run of 150 us or more tells what takes twice as long, and
  // the least of three what takes 1.3 times as long (of milliseconds, a second one what takes 1.1 times as long): most
  // candidates of a large batch. What is above 1.005 times (hosts: 1.04 times) after the first full sample gets no
  // more, nor, on cuda, does what is below by as much: one sample tells apart what differs.
  double race_seconds = 0;
  // The executable ran before: no run to warm up.
  bool has_run = false;
  // Start every run with a cold last-level cache. Each run is then timed alone, launch included: for kernels of more
  // than some ten microseconds.
  bool flush_cache = false;
  // Runs take turns among copies, so that each finds the caches as in a network (compiler/runtime/cold_copies.h): on
  // cuda of the code and of constants of a megabyte or more, on cpu of all buffers. Without it the
  // times of tasks add up to less than the network takes.
  bool cold = true;
  // Where those copies are from, and go back to (cuda: those of constants). Null: they are made for this measurement.
  SpareBuffers* spare_buffers = nullptr;
  // cuda: of the time in `race_seconds`, what the same candidate takes with warm caches and nothing in front of it; 1:
  // that is not known. Candidates are timed so first, and what is clearly slower than that ends there, its time divided
  // by this share.
  double warm_share = 1;
  // cuda: gets what the executable takes so, where a race has timed many runs. Null: nobody asks.
  double* warm_seconds = nullptr;
  // cuda, programs whose kernels start early (Kernel::overlap), where runs are repeated inside one plan: each run comes
  // behind these launches, as it comes behind the kernel that writes its inputs in a network. Their own time, measured
  // apart, is taken off.
  std::vector<Launch> before;
  // Launches of the same device that take as long as `before`, asked for once they are needed, timed again and
  // corrected; kept from program to program. Null, or if it gives null: `before` is timed for this program.
  std::function<absl::StatusOr<TimedLaunches*>()> timed_before;
  // Measuring ends with the samples that there are (at least one) once it has taken this long. A kernel that hangs is
  // not stopped by this: the process that supervises has that deadline.
  double max_seconds = 10;

  // Sets flush_cache and cold. Only with the caches of a network may `before` be given.
  void SetCaches(Caches caches) {
    flush_cache = caches == Caches::kFlushed;
    cold = caches == Caches::kNetwork;
  }
};

// Runs once to warm up, unless it has run, then measures. Kernels shorter than a launch are repeated inside one plan
// (on cuda: one graph), so that what is timed is the device and not the host that feeds it. Timing::number is the runs
// of a sample; build_seconds stays 0. Errors: those of Device::MakePlan and Plan. REQUIRES: buffers filled and prologue
// run.
absl::StatusOr<Timing> MeasureExecutable(Executable& executable, const TimingOptions& options);

// The same for a plan that exists, run as it is (a whole network): samples are seconds of one Plan::Run.
absl::StatusOr<Timing> MeasurePlan(Device& device, Plan& plan, const TimingOptions& options);

}  // namespace diapason
