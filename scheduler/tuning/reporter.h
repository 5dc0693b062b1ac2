// What a run tells of itself.
#pragma once

#include "absl/status/status.h"
#include "scheduler/progress.h"
#include "scheduler/tuning/replays.h"
#include "scheduler/tuning/requests.h"
#include "scheduler/tuning/results.h"
#include "scheduler/tuning/run_clock.h"
#include "scheduler/tuning/tasks.h"

namespace diapason::tuning {

// Changes nothing of a run.
class Reporter {
 public:
  Reporter(const RunContext& context, const RunClock& clock, const Requests& requests, const Results& results,
           const Replays& replays)
      : context_(context), clock_(clock), requests_(requests), results_(results), replays_(replays) {}

  // Reads how far the sum of the tasks' times was off when the network was measured from end to end.
  absl::Status ReadCorrection();
  TuneReport Report() const;
  // Tells the listener now and then.
  void Tick();

 private:
  TaskReport ReportOf(const TaskState& task) const;
  // By which the analytic estimates of the fallback schedules that are timed were off, together; 1: none is.
  double AnalyticError() const;
  void AddTasks(TuneReport& report) const;
  void AddTimes(TuneReport& report) const;

  const RunContext context_;
  const RunClock& clock_;
  const Requests& requests_;
  const Results& results_;
  const Replays& replays_;
  double correction_ = 1;  // of the sum of the tasks' times, by what the network took from end to end
  double last_tick_ = 0;
};

}  // namespace diapason::tuning
