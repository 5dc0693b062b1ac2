// The stages of a schedule with their loops, and who reads whom: what steps change.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/library_call.h"

namespace diapason {

struct RecurrentSchedule;

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
  Expr scale{};         // of differences from M in the exponentials, of numbers and inputs of one element; null: 1

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
  Factor odd_rows{0};
  Factor align_rows{1};
  Factor unroll{0};
  TensorMode tensor = TensorMode::kNone;
  int tensor_k = -1, tensor_m = -1, tensor_n = -1;  // loops of this stage
  int lane_stage = -1, lane_m = -1, lane_n = -1;    // the stage with the thread loops, its lane loops
  bool core_matrices = false;                       // kCoreMatrices
  bool async_copy = false;                          // kAsyncCopy
  bool tensor_copy = false;                         // kTensorCopy
  Factor core_width;                                // a multiple of the elements of its runs
  Carry carry;
  bool bulk = false;  // kBulkCopy
  Factor bulk_tiles{1};
  int image_of = -1;   // kBulkCopy: the copy whose tiles this stage holds
  Factor producer{0};  // kProducer
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
  // Not null: the stage's kernel computes all stages, as a recurrence.
  std::shared_ptr<const RecurrentSchedule> recurrence;
  std::vector<Factor> recurrent_factors;

  bool is_spatial_axis(int axis) const { return axis < static_cast<int>(op.axes.size()); }
  int axis_count() const { return static_cast<int>(op.axes.size() + op.reduce_axes.size()); }
  const Axis& axis(int i) const { return is_spatial_axis(i) ? op.axes[i] : op.reduce_axes[i - op.axes.size()]; }
  bool computes() const { return !op.placeholder && attach != Attach::kInlined; }
  // Whether it lies in memory, with its last dimension innermost and no gaps.
  bool is_row_major() const {
    return (op.placeholder || attach == Attach::kRoot) && layout_factors.empty() && image_of < 0;
  }
};

// By stage id. Ids never change; new stages take the next ones.
class ScheduledStages {
 public:
  // Those of the dag, each with its axes as loops.
  explicit ScheduledStages(const ComputeDag& dag);

  const std::vector<StageState>& all() const { return stages_; }
  const StageState& at(int id) const { return stages_[id]; }
  // Invalidated by Add.
  StageState& at(int id) { return stages_[id]; }
  StageState& last() { return stages_.back(); }
  int size() const { return static_cast<int>(stages_.size()); }
  // Ids in an order in which producers come before consumers.
  const std::vector<int>& topological() const { return topological_; }
  const std::vector<int>& outputs() const { return outputs_; }
  bool is_output(int id) const;
  // Whether the stage is computed at that loop of the target, the only candidate.
  bool IsComputedAt(int id, int target, int loop) const;
  // Stages that read `id`, looking at bodies as they are now (an inlined stage has no readers).
  std::vector<int> Consumers(int id) const;
  std::vector<int> Producers(int id) const;
  // `name`, with a number behind it where a stage has that name.
  std::string UniqueName(const std::string& name) const;

  // Adds a stage with its axes as loops, in topological order in front of `before` (at the end: -1). Returns its id.
  int Add(Stage op, int before);
  // Makes the axes of a stage its loops again, with nothing said about how they run.
  static void ResetLoops(StageState& stage);
  // Puts a stage in front of another one in topological order, unless it stands there already.
  void MoveBefore(int id, int other);
  // Finds out anew which stages depend on constants alone.
  void UpdatePrologue();

 private:
  std::vector<StageState> stages_;
  std::vector<int> topological_;
  std::vector<int> outputs_;
};

}  // namespace diapason
