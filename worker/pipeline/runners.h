// The runner processes: one for each device, one program at a time, quiet while it is timed.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/runtime/outcome.h"
#include "compiler/tensor/target.h"
#include "worker/pipeline/device_health.h"
#include "worker/pipeline/job.h"
#include "worker/pipeline/jobs.h"
#include "worker/pipeline/process_slot.h"
#include "worker/pipeline/race_times.h"

namespace diapason::pipeline {

class Runners {
 public:
  // What runners ask of other parts.
  struct Asks {
    std::function<void(bool quiet, Instant now)> quiet;  // builders are to be, or not any more
    std::function<void(const JobPtr& probe)> reference;  // to be built
  };

  // `counts`: where runs are counted.
  Runners(const PipelineOptions& options, Jobs& jobs, v1::WorkerStatistics& counts, Asks asks)
      : options_(options), jobs_(jobs), counts_(counts), asks_(std::move(asks)) {}

  // `name`: of the device, which has the next number.
  void Add(std::unique_ptr<ProcessSlot> slot, const Target& target, const std::string& name);
  // Kills all.
  void Clear() { places_.clear(); }
  size_t size() const { return places_.size(); }
  const Target& target(int device) const { return places_[device]->target; }
  const v1::DeviceDescription& description(int device) const { return places_[device]->description; }
  // OK when all are ready, Unavailable when one does not start; nothing as long as that is not known.
  std::optional<absl::Status> Started() const;

  void Advance(Instant now);
  // Begins the probes that are due.
  void BeginProbes(Instant now);
  // Gives those that are idle what waits for them.
  void Begin(Instant now);
  // A program of the job was built. It waits for its device when that was the last one.
  void TakeBuilt(const JobPtr& job);
  void ProbeEnded(const JobPtr& probe, Instant now);

  // With the moment when it is to be probed.
  void ForEach(const std::function<void(const ProcessSlot& slot, std::optional<Instant> probe)>& visit) const;
  // Adds what they have done, and their number.
  void AddTo(v1::WorkerStatistics& statistics) const;
  std::vector<v1::DeviceStatus> States() const;
  std::vector<v1::DeviceStatistics> Counts() const;

 private:
  struct Place {
    explicit Place(const PipelineOptions& options) : health(options) {}

    std::unique_ptr<ProcessSlot> slot;
    Target target;
    v1::DeviceDescription description;
    DeviceHealth health;
    std::deque<JobPtr> waiting;
    JobPtr job;
    JobPtr probe;  // being built, waiting or run
    MeasureStage stage = MeasureStage::kLoad;
    double timeout = 0;
    bool holds_quiet = false;  // builders are stopped for it
    std::string start_failure;
    v1::DeviceStatistics counts;

    std::optional<Instant> NextProbe() const;
  };

  void BeginRun(Place& place, JobPtr job, Instant now);
  void OnEvent(Place& place, const SlotEvent& event, Instant now);
  void OnReady(Place& place);
  void OnProgress(Place& place, const v1::ProcessProgress& progress, Instant now);
  void OnRan(Place& place, v1::RunReply& reply, Instant now);
  void OnLost(Place& place, const SlotEvent& loss, Instant now);
  void OnStartFailure(Place& place, const SlotEvent& failure);
  void CountRun(Place& place, bool failed);
  void SetQuiet(Place& place, bool quiet, Instant now);
  void Quarantine(Place& place, const std::string& why, Instant now);

  const PipelineOptions& options_;
  Jobs& jobs_;
  v1::WorkerStatistics& counts_;
  const Asks asks_;
  std::vector<std::unique_ptr<Place>> places_;  // by number of the device
  RaceTimes race_;
};

}  // namespace diapason::pipeline
