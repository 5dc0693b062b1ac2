// The numbers of a schedule: extents of loops, regions of attached stages, sizes of their buffers; from a State's
// structure and the configuration, without building any expression. Lowering and the search's evaluation share this,
// and tests hold it against what is counted on the lowered loop nest.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "compiler/schedule/region.h"
#include "compiler/schedule/short_list.h"
#include "compiler/schedule/state.h"

namespace diapason {

// One load of `producer` in the body of `reader`, index by index as constant + sum of coefficient * axis.
struct Access {
  struct Dim {
    bool affine = true;
    int64_t constant = 0;
    absl::InlinedVector<std::pair<int, int64_t>, 4> axes;  // axis of the reader (spatial, then reduce), coefficient
    absl::InlinedVector<int, 4> moved_by;                  // not affine: axes of the reader that it depends on
  };
  int reader = -1, producer = -1;
  std::vector<Dim> dims;
};

// An index of a load in the body of a stage, or what it is in memory.
Access::Dim AffineDim(const StageState& reader, const Expr& index);

struct StageBounds {
  std::vector<int64_t> extent;    // by loop id
  std::vector<Terms> axis_terms;  // by axis: its value as a sum over atoms that move (plus axis_constant)
  std::vector<int64_t> axis_constant;
  std::vector<uint8_t> axis_affine;  // 0: tiles cut across region levels; only expressions can say the value
  std::vector<Region> region;        // by dimension, attached stages
  int attach_loop = -1, attach_position = -1;
  std::vector<int64_t> buffer;  // compact extents by dimension (root: the shape)
  int64_t row_padding = 0;
  int64_t row_alignment = 1;  // of the region along the last dimension
  // StepKind::kCoreMatrices: elements of a run, 16 bytes, or 32, 64 or 128 in a swizzled buffer; 0: none. Then there is
  // no row_padding.
  int64_t core_row = 0;
  bool swizzled = false;
  bool bulk = false;      // StepKind::kBulkCopy: all of a slot is copied
  bool producer = false;  // StepKind::kProducer, whichever
  int64_t steps = 1;      // iterations that its loop has, of a reduction that another stage's loop carries
  int64_t slots = 1;      // buffers in turn (pipelined copies); each is slot_stride() elements after the other
  // partial results side by side (Annotation::kThreadSet), as far from each other as slots are
  int64_t thread_sets = 1;

  int64_t elements() const;  // of one buffer, padding included
  // Core matrices: elements from core_row of the last dimension to as many more. REQUIRES: core_row > 0.
  int64_t core_stride() const { return (buffer[buffer.size() - 2] + (swizzled ? 0 : 1)) * core_row; }
  // Elements from one slot, or the results of one set of threads, to the next: rounded up so that each starts as
  // aligned as the first.
  int64_t slot_stride() const { return (elements() + 15) / 16 * 16; }
  // Elements that the low parts of a copy in core matrices take on cuda: two slots in turn, however long the
  // pipeline.
  int64_t low_parts() const { return slots > 1 ? 2 * slot_stride() : elements(); }
  int64_t stored() const { return slots * thread_sets > 1 || bulk ? slots * thread_sets * slot_stride() : elements(); }
};

// Whether a stage's numbers allow that tensor copies make it on GPUs that have them (kTensorCopy), if its region does.
inline bool IsMadeByTensorCopies(const StageState& stage, const StageBounds& bounds) {
  return stage.tensor_copy && bounds.slots > 1 && bounds.swizzled;
}

struct Bounds {
  std::vector<StageBounds> stages;  // by stage id; kept between calls to spare allocations
};

// Elements that each thread has of a stage in Memory::kLanes where that is registers: those of its loops that are not
// over threads.
int64_t ElementsOfThread(const StageState& stage, const StageBounds& bounds);

// A State prepared for fast evaluation. Immutable.
class Skeleton {
 public:
  explicit Skeleton(State state);
  const State& state() const { return state_; }
  // Accesses by reader (computed stages only).
  const std::vector<Access>& accesses(int reader) const { return accesses_[reader]; }
  // Leaf position of a loop (that of the leaf it was fused into; -1 if it was split after).
  int position(int stage, int loop) const { return position_[stage][loop]; }
  // The leaf at a position or the leaf that an atom was fused into.
  bool is_thread(int stage, int loop) const;
  // Computed stages, consumers before producers.
  const std::vector<int>& backwards() const { return backwards_; }
  // The root of the kernel in which a stage is computed.
  int root_of(int stage) const { return root_[stage]; }

  void Infer(absl::Span<const int32_t> configuration, Bounds* bounds) const;
  // The same for the stages of one kernel alone. Stages of different kernels do not depend on each other; bounds of
  // others stay as they are.
  void InferKernel(int root, absl::Span<const int32_t> configuration, Bounds* bounds) const;
  // The first loop of the pipeline of a stage with shared copies at its loop `position`: that and the loops behind it,
  // down to `position`, are serial reduce loops. -1: the loops do not allow a pipeline.
  int PipelineStart(int stage, int position) const;
  // The slots of a copy in shared memory: one a stage of the pipeline, and no more than there are iterations. Bounds
  // may be those of a configuration with other stages of the pipeline.
  int64_t SlotsOf(int stage, absl::Span<const int32_t> configuration, const Bounds& bounds) const;

  // One index of an access, split by the producer's attach point. False, with `terms` undefined: it is not affine, or a
  // term is partly inside.
  bool SplitIndex(const Bounds& bounds, const Access& access, int dim, IndexTerms* terms) const;

 private:
  void InferStages(const std::vector<int>& stages, absl::Span<const int32_t> configuration, Bounds* bounds) const;
  void InferLoops(int stage, absl::Span<const int32_t> configuration, StageBounds* out) const;
  void FinishRegion(int stage, Bounds* bounds) const;
  bool IsCopyOfMemory(int stage) const;
  void InferAxisTerms(int stage, Bounds* bounds) const;
  void PushRegions(int reader, Bounds* bounds) const;
  void LocalTerms(int stage, int loop, int64_t coefficient, const Bounds& bounds, Terms* terms) const;
  struct Place {
    int stage = -1, position = -1;
  };
  Place PlaceOf(int producer, const Bounds& bounds) const;
  bool CutByAttachPoint(const Term& term, int producer, const Bounds& bounds) const;
  bool Inside(const Term& term, int producer, const Bounds& bounds) const;

  State state_;
  std::vector<std::vector<Access>> accesses_;
  std::vector<Factor> thread_sets_;  // by stage: of the threads of a reduction that is computed in it
  std::vector<int64_t> channels_;    // by stage: of the windows that tensor copies read for it; 0: none
  std::vector<std::vector<int>> position_;
  // Position of the outermost leaf that an atom takes part in: that of position_, save for loops that were fused and
  // split again.
  std::vector<std::vector<int>> outermost_;
  std::vector<int> backwards_;
  std::vector<std::vector<int>> kernel_backwards_;  // by root
  std::vector<int> root_;
};

}  // namespace diapason
