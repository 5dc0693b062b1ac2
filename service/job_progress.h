// How a tuner's run becomes the progress of its job.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "compiler/graph/partition.h"
#include "scheduler/progress.h"

namespace diapason {

namespace v1 {
class JobProgress;
}

// What the network took at the end is the best estimate of it, and corrects those of other schedules.
void EstimateAsMeasured(double latency_us, v1::JobProgress& progress);

// Listens to a tuner and hands out the state of its job, at most five times a second and whenever something ends.
class JobListener : public ProgressListener {
 public:
  using Report = std::function<void(const v1::JobProgress&)>;
  JobListener(const Partition& partition, Report report) : partition_(partition), report_(std::move(report)) {}

  void OnStart(const TuneReport& report) override { Send(report); }
  void OnRound(int task, int candidates, const TuneReport& report) override;
  void OnRecord(int task, const TuningRecord& record, bool best, const TuneReport& report) override;
  void OnVerified(int task, int64_t record, bool ok, const std::string& text) override;
  void OnWarning(const std::string& text) override;
  void OnTick(const TuneReport& report) override;
  void OnFinish(const TuneReport& report) override;

 private:
  void Send(const TuneReport& report);

  const Partition& partition_;
  const Report report_;
  int64_t built_ = 0, run_ = 0, current_task_ = 0;
  std::deque<std::string> warnings_;
  double reported_at_ = -1;  // seconds of the run
};

}  // namespace diapason
