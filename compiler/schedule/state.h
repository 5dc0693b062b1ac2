// State: what replaying schedule steps on a dag gives (Ansor's State), structure only. Extents and regions are numbers
// that follow from it and the configuration: compiler/schedule/bounds.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/library_call.h"

namespace diapason {

enum class Memory : uint8_t {
  kGlobal = 0,
  kShared = 1,  // one copy a block
  kLocal = 2,   // one copy a thread
  // One copy a block, of which each thread has the elements that it computes: on cuda in its registers, read by others
  // of its warp by shuffles; in shared memory elsewhere.
  kLanes = 3,
};
// One copy for the threads of a block.
inline bool IsOfBlock(Memory memory) { return memory == Memory::kShared || memory == Memory::kLanes; }

// An expression without its outermost conversion to another type, if it has one.
inline const Expr& Unconverted(const Expr& e) { return e->kind == ExprKind::kCast ? e->args[0] : e; }

struct Loop {
  enum class Origin : uint8_t { kAxis, kSplit, kFuse, kReplica };
  std::string name;
  bool reduce = false;
  Origin origin = Origin::kAxis;
  int axis = -1;            // kAxis: spatial axes first, then reduce axes
  int parent = -1;          // kSplit: the loop that was split
  int level = 0;            // kSplit: 0 is the outermost piece
  Factor factor;            // kSplit: extent of a piece of level >= 1; kReplica: extent
  std::vector<int> fused;   // kFuse: the loops it was made of, outer to inner
  std::vector<int> pieces;  // if split: its pieces, outer to inner
  int fused_into = -1;      // if fused: the loop it went into
  Annotation annotation = Annotation::kNone;
  Factor group{1};  // kGroupBlocks

  bool is_leaf() const { return pieces.empty() && fused_into < 0; }
};

// StepKind::kCarry.
struct Carry {
  int loop = -1;  // -1: the reduction is not carried
  int target = -1, target_loop = -1;
  int maximum = -1;     // M; -1: none
  Expr maximum_load{};  // of M for an element of the stage

  bool is_carried() const { return loop >= 0; }
  // Carried by the loop of another stage.
  bool is_carried_by(int stage) const { return is_carried() && target == stage; }
};

struct StageState {
  enum class Attach : uint8_t { kRoot, kInlined, kAt };
  Stage op;                 // body over the ids of this State
  std::vector<Loop> loops;  // by loop id
  std::vector<int> order;   // leaf loops, outer to inner
  Attach attach = Attach::kRoot;
  int attach_stage = -1;
  std::vector<int> attach_loops;  // candidates
  Factor attach_choice;           // index into attach_loops
  Memory memory = Memory::kGlobal;
  Factor pad_rows{0};
  Factor align_rows{1};
  Factor unroll{0};
  TensorMode tensor = TensorMode::kNone;
  int tensor_k = -1, tensor_m = -1, tensor_n = -1;  // loops of this stage
  int lane_stage = -1, lane_m = -1, lane_n = -1;    // the stage with the thread loops, its lane loops
  bool core_matrices = false;                       // kCoreMatrices
  bool async_copy = false;                          // kAsyncCopy
  Factor core_width;                                // a multiple of the elements of its runs
  Carry carry;
  bool bulk = false;  // kBulkCopy
  Factor bulk_tiles{1};
  int image_of = -1;   // kBulkCopy: the copy whose tiles this stage holds
  Factor pipeline{1};  // buffers of each shared copy that is computed in this stage
  // Physical layout (kPack): split factor of each dimension and order of the pieces; empty: row-major.
  std::vector<Factor> layout_factors;
  std::vector<int> layout_order;
  bool prologue = false;
  bool rounded = false;  // kRoundFactors
  // Not null: a call of a library computes this stage, reading `library_operands` (stage ids, in order of the call's
  // operands); its loops are of no meaning.
  std::shared_ptr<const LibraryCall> library;
  Factor library_algorithm{0};
  std::vector<int> library_operands;

  bool is_spatial_axis(int axis) const { return axis < static_cast<int>(op.axes.size()); }
  int axis_count() const { return static_cast<int>(op.axes.size() + op.reduce_axes.size()); }
  const Axis& axis(int i) const { return is_spatial_axis(i) ? op.axes[i] : op.reduce_axes[i - op.axes.size()]; }
  bool computes() const { return !op.placeholder && attach != Attach::kInlined; }
};

class State {
 public:
  explicit State(const ComputeDag& dag);

  // Applies one step. InvalidArgument says which rule of the step does not hold; the state is then unchanged in meaning
  // but must not be used further.
  absl::Status Apply(const Step& step);

  const std::vector<StageState>& stages() const { return stages_; }
  const StageState& stage(int id) const { return stages_[id]; }
  int size() const { return static_cast<int>(stages_.size()); }
  // Ids in an order in which producers come before consumers.
  const std::vector<int>& topological() const { return topological_; }
  const std::vector<int>& outputs() const { return outputs_; }
  // Kernels may start before those that they depend on have ended.
  bool has_overlap() const { return has_overlap_; }  // there is a step kOverlap
  Factor overlap() const { return overlap_; }
  bool is_output(int id) const;
  // Whether the stage is computed at that loop of the target, the only candidate.
  bool IsComputedAt(int id, int target, int loop) const;
  // True for a copy in core matrices whose elements are factors in two parts, so that on cuda a buffer of small parts
  // lies beside it.
  bool has_small_parts(int copy) const;
  // True for a copy in core matrices whose elements are to be rounded to TensorFloat-32 where they lie, on cuda, before
  // products read them: those of constants that are rounded already (kRoundFactors) are not.
  bool is_rounded_in_place(int copy) const;
  // True if all that a stage reads are copies in core matrices.
  bool reads_core_matrices(int products) const;
  // Stages that read `id`, looking at bodies as they are now (an inlined stage has no readers).
  std::vector<int> Consumers(int id) const;
  std::vector<int> Producers(int id) const;
  // The stages as text: one line a loop, with factors or holes.
  std::string ToString() const;

 private:
  absl::Status Split(const Step& step);
  absl::Status Fuse(const Step& step);
  absl::Status Reorder(const Step& step);
  absl::Status ComputeAt(const Step& step);
  absl::Status Inline(const Step& step);
  absl::Status CacheWrite(const Step& step);
  absl::Status CacheRead(const Step& step);
  absl::Status Rfactor(const Step& step);
  absl::Status RfactorMiddle(const Step& step);
  void ReduceSlices(int reduction, int partial, int64_t slice_extent);
  absl::Status Pack(const Step& step);
  absl::Status BulkCopy(const Step& step);
  absl::Status RoundFactors(const Step& step);
  absl::Status ReadThrough(int stage, const std::vector<int>& readers, const char* ending);
  absl::Status Tensorize(const Step& step);
  absl::Status GroupBlocks(const Step& step);
  absl::Status Replicate(const Step& step);
  absl::Status CarryReduction(const Step& step);
  absl::Status CarryRelative(const Step& step, Carry* carry);
  absl::Status CallLibrary(const Step& step);
  const TensorIntrinsic* ReaderOfCoreMatrices(int copy) const;
  int AddStage(Stage op, int before);
  void ResetLoops(StageState& stage);
  std::string UniqueName(const std::string& name) const;
  void UpdatePrologue();

  std::vector<StageState> stages_;
  std::vector<int> topological_;
  std::vector<int> outputs_;
  bool has_overlap_ = false;
  Factor overlap_{0};
};

// Replays all steps; the error names the step by its position.
absl::StatusOr<State> Replay(const ComputeDag& dag, const std::vector<Step>& steps);

}  // namespace diapason
