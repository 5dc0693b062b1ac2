// The Space of one sketch: its skeleton, its parameters and the limits of the target.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/sketch/draft.h"
#include "scheduler/sketch/metrics.h"
#include "scheduler/sketch/pipeline_slots.h"
#include "scheduler/space.h"

namespace diapason {

class SketchSpace : public Space {
 public:
  SketchSpace(std::string name, DagRewrite rewrite, const Draft& draft);

  const std::string& name() const override { return name_; }
  const DagRewrite& rewrite() const override { return rewrite_; }
  bool loses_digits() const override { return loses_digits_; }
  bool preferred_fallback() const override { return preferred_fallback_; }
  int size() const override { return static_cast<int>(parameters_.size()); }
  const std::string& parameter_name(int parameter) const override { return parameters_[parameter].name; }
  void Domain(int parameter, absl::Span<const int32_t> configuration, std::vector<int32_t>* values) const override;
  void Clamp(int first, absl::Span<int32_t> configuration) const override;
  void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override;
  Schedule Instantiate(absl::Span<const int32_t> configuration) const override;
  std::vector<int32_t> Default() const override;
  // Looks for the default configuration once, before the space is shared: Default() then returns it at once. Without
  // `climb` it is where the climb would start. Returns its estimate in seconds; infinity if it is not legal.
  double FindDefault(bool climb);
  std::vector<std::vector<int32_t>> Priors() const override;

  const Skeleton& skeleton() const { return *skeleton_; }
  const MetricsModel& model() const { return *model_; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  // A set of kernels, a bit each.
  using Kernels = uint64_t;
  // The limits of these kernels.
  bool Satisfiable(absl::Span<const int32_t> configuration, Kernels kernels) const;
  void DomainWithinLimits(int parameter, absl::Span<int32_t> trial, std::vector<int32_t>* values) const;
  bool PaddingOk(const Tiling& tiling, absl::Span<const int32_t> configuration) const;
  bool PaddingsOk(int parameter, absl::Span<const int32_t> configuration) const;
  std::vector<int32_t> Start() const;
  std::vector<int32_t> Climbed() const;
  void ClimbFrom(double seconds, std::vector<int32_t>* best) const;
  bool has_prior() const;
  int KeepMost(int first, absl::Span<const int32_t> configuration, absl::Span<int32_t> trial) const;

  std::string name_;
  DagRewrite rewrite_;
  bool loses_digits_, preferred_fallback_, is_gpu_;
  std::vector<Step> steps_;
  std::vector<TunableParameter> parameters_;
  std::vector<Tiling> tilings_;
  std::vector<std::vector<int>> tilings_of_;  // by parameter: the tilings it enters
  std::vector<uint8_t> uneven_;               // by parameter: the limits are not monotone in it
  std::vector<Kernels> kernels_of_;           // by parameter: those whose limits depend on it
  Kernels all_kernels_ = 0;
  std::vector<int32_t> default_;  // where FindDefault was called
  bool has_default_ = false;
  std::unique_ptr<Skeleton> skeleton_;
  PipelineSlots slots_;
  std::unique_ptr<MetricsModel> model_;
};

}  // namespace diapason
