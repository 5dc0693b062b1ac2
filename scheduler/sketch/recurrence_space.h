// The space of a recurrence: all steps in one kernel ("direct/recurrence"; compiler/schedule/recurrent_tiles.h).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/recurrent_tiles.h"
#include "scheduler/sketch/draft.h"
#include "scheduler/space.h"

namespace diapason {

class RecurrenceSpace : public Space {
 public:
  // FailedPrecondition, naming a limit, if the device has no candidate at all.
  static absl::StatusOr<std::unique_ptr<RecurrenceSpace>> Create(RecurrentSchedule schedule,
                                                                 const SketchContext& context);

  const std::string& name() const override { return name_; }
  const DagRewrite& rewrite() const override { return rewrite_; }
  int size() const override { return static_cast<int>(kParameters); }
  const std::string& parameter_name(int parameter) const override { return names_[parameter]; }
  void Domain(int parameter, absl::Span<const int32_t> configuration, std::vector<int32_t>* values) const override;
  void Clamp(int first, absl::Span<int32_t> configuration) const override;
  // The estimate counts instructions and barriers of a step; all features but the number of kernels, the estimate and
  // the configuration are 0, as those of calls of libraries.
  void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override;
  Schedule Instantiate(absl::Span<const int32_t> configuration) const override;
  std::vector<int32_t> Default() const override { return default_; }

 private:
  static constexpr size_t kParameters = 4;  // the factors of StepKind::kRecurrence
  using Configuration = std::array<int32_t, kParameters>;

  RecurrenceSpace(RecurrentSchedule schedule, const SketchContext& context)
      : schedule_(std::move(schedule)), target_(context.target), facts_(context.facts) {}
  double Estimate(const RecurrentTiles& tiles) const;
  double SecondsOfStep(const RecurrentTiles& tiles) const;

  const std::string name_ = "direct/recurrence";
  const std::array<std::string, kParameters> names_{"blocks", "lanes", "units", "weights"};
  const DagRewrite rewrite_;
  const RecurrentSchedule schedule_;
  const Target target_;
  const DeviceFacts facts_;
  std::vector<Configuration> legal_;  // ascending
  std::vector<int32_t> default_;
};

}  // namespace diapason
