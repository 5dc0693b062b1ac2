// Parameters that say how many stages a pipeline has. Stages beyond the steps of its loops have no slots in shared
// memory: candidates that differ in these alone are one program, for which the fewest stages stand.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compiler/schedule/bounds.h"
#include "scheduler/sketch/tunable_parameters.h"

namespace diapason {

class PipelineSlots {
 public:
  // The skeleton is to outlive it.
  PipelineSlots(const Skeleton& skeleton, const std::vector<TunableParameter>& parameters);

  // Whether a parameter is such a one.
  bool SetBy(int parameter) const { return Find(parameter) != nullptr; }
  // Drops each of a parameter's values, ascending, that makes the program of the one before it. `bounds` are those of
  // the configuration, but for stages of pipelines; its value of the parameter is undefined afterwards.
  void DropEqual(int parameter, const Bounds& bounds, absl::Span<int32_t> configuration,
                 std::vector<int32_t>* values) const;
  // Sets all such parameters of a configuration to the least values with the same program. `bounds` are its.
  void DropUnused(const Bounds& bounds, absl::Span<int32_t> configuration) const;

 private:
  struct Pipeline {
    int parameter = -1;
    std::vector<int32_t> values;
    std::vector<int> copies;  // what has slots
  };
  const Pipeline* Find(int parameter) const;
  bool AreEqual(const Pipeline& pipeline, int32_t fewer, int32_t more, const Bounds& bounds,
                absl::Span<int32_t> configuration) const;

  const Skeleton& skeleton_;
  std::vector<Pipeline> pipelines_;
};

}  // namespace diapason
