// State: what replaying schedule steps on a dag gives (Ansor's State), structure only. Extents and regions are numbers
// that follow from it and the configuration: compiler/schedule/bounds.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/schedule/stages.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

class State {
 public:
  explicit State(const ComputeDag& dag) : stages_(dag) {}

  // Applies one step. InvalidArgument says which rule of the step does not hold; the state is then unchanged in meaning
  // but must not be used further.
  absl::Status Apply(const Step& step);

  // As ScheduledStages has them.
  const std::vector<StageState>& stages() const { return stages_.all(); }
  const StageState& stage(int id) const { return stages_.at(id); }
  int size() const { return stages_.size(); }
  const std::vector<int>& topological() const { return stages_.topological(); }
  const std::vector<int>& outputs() const { return stages_.outputs(); }
  bool is_output(int id) const { return stages_.is_output(id); }
  bool IsComputedAt(int id, int target, int loop) const { return stages_.IsComputedAt(id, target, loop); }
  std::vector<int> Consumers(int id) const { return stages_.Consumers(id); }
  std::vector<int> Producers(int id) const { return stages_.Producers(id); }

  // Kernels may start before those that they depend on have ended.
  bool has_overlap() const { return has_overlap_; }  // there is a step kOverlap
  Factor overlap() const { return overlap_; }
  // True for a copy in core matrices whose elements are factors in two parts, so that on cuda a buffer of low parts
  // lies beside it.
  bool has_low_parts(int copy) const;
  // True for a copy in core matrices whose elements are to be rounded to TensorFloat-32 where they lie, on cuda, before
  // products read them: those of constants that are rounded already (kRoundFactors) are not.
  bool is_rounded_in_place(int copy) const;
  // True if all that a stage reads are copies in core matrices.
  bool reads_core_matrices(int products) const;
  // The stages as text: one line a loop, with factors or parameters.
  std::string ToString() const;

 private:
  const TensorIntrinsic* ReaderOfCoreMatrices(int copy) const;

  ScheduledStages stages_;
  bool has_overlap_ = false;
  Factor overlap_{0};
};

// Replays all steps; the error names the step by its position.
absl::StatusOr<State> Replay(const ComputeDag& dag, const std::vector<Step>& steps);

}  // namespace diapason
