#include "scheduler/sketch/pipeline_slots.h"

#include <algorithm>

namespace diapason {

PipelineSlots::PipelineSlots(const Skeleton& skeleton, const std::vector<TunableParameter>& parameters)
    : skeleton_(skeleton) {
  for (int id : skeleton.backwards()) {
    const StageState& copy = skeleton.state().stage(id);
    if (copy.memory != Memory::kShared || copy.attach != StageState::Attach::kAt) continue;
    for (int16_t parameter : skeleton.state().stage(copy.attach_stage).pipeline.parameters) {
      if (parameter < 0) continue;
      if (!SetBy(parameter)) pipelines_.push_back({parameter, parameters[parameter].values, {}});
      for (Pipeline& pipeline : pipelines_)
        if (pipeline.parameter == parameter) pipeline.copies.push_back(id);
    }
  }
}

const PipelineSlots::Pipeline* PipelineSlots::Find(int parameter) const {
  for (const Pipeline& pipeline : pipelines_)
    if (pipeline.parameter == parameter) return &pipeline;
  return nullptr;
}

bool PipelineSlots::AreEqual(const Pipeline& pipeline, int32_t fewer, int32_t more, const Bounds& bounds,
                             absl::Span<int32_t> configuration) const {
  return std::all_of(pipeline.copies.begin(), pipeline.copies.end(), [&](int copy) {
    configuration[pipeline.parameter] = fewer;
    const int64_t least = skeleton_.SlotsOf(copy, configuration, bounds);
    configuration[pipeline.parameter] = more;
    return skeleton_.SlotsOf(copy, configuration, bounds) == least;
  });
}

void PipelineSlots::DropEqual(int parameter, const Bounds& bounds, absl::Span<int32_t> configuration,
                              std::vector<int32_t>* values) const {
  const Pipeline* pipeline = Find(parameter);
  if (pipeline == nullptr) return;
  const auto equal = [&](int32_t fewer, int32_t more) {
    return AreEqual(*pipeline, fewer, more, bounds, configuration);
  };
  values->erase(std::unique(values->begin(), values->end(), equal), values->end());
}

void PipelineSlots::DropUnused(const Bounds& bounds, absl::Span<int32_t> configuration) const {
  for (const Pipeline& pipeline : pipelines_) {
    auto at = std::lower_bound(pipeline.values.begin(), pipeline.values.end(), configuration[pipeline.parameter]);
    while (at != pipeline.values.begin() && AreEqual(pipeline, *(at - 1), *at, bounds, configuration)) --at;
    configuration[pipeline.parameter] = *at;
  }
}

}  // namespace diapason
