// The builder processes: each builds one program at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/pipeline/builds.h"
#include "worker/pipeline/job.h"
#include "worker/pipeline/process_slot.h"

namespace diapason::pipeline {

class Builders {
 public:
  Builders(const PipelineOptions& options, Builds& builds, v1::WorkerStatistics& counts)
      : options_(options), builds_(builds), counts_(counts) {}

  void Add(std::unique_ptr<ProcessSlot> slot);
  // Kills all.
  void Clear() { places_.clear(); }
  void Advance(Instant now);
  // Gives those that are idle something to build, unless they are to be quiet.
  void Begin(Instant now);
  // While the host's cores are timed, builders are stopped, and their clocks with them. Calls nest.
  void Quiet(bool quiet, Instant now);
  void ForEach(const std::function<void(const ProcessSlot& slot)>& visit) const;
  // Adds what they have done, and their number.
  void AddTo(v1::WorkerStatistics& statistics) const;

 private:
  struct Place {
    std::unique_ptr<ProcessSlot> slot;
    std::optional<BuildTask> task;
    MeasureStage stage = MeasureStage::kInstantiate;
    double timeout = 0;
    int start_failures = 0;
  };

  void OnEvent(Place& place, const SlotEvent& event);
  void OnLost(Place& place, const SlotEvent& loss);
  void GiveUpIfNoneStarts(const std::string& text);

  const PipelineOptions& options_;
  Builds& builds_;
  v1::WorkerStatistics& counts_;
  std::vector<std::unique_ptr<Place>> places_;
  int quiet_holders_ = 0;
};

}  // namespace diapason::pipeline
