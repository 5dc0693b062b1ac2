// Emits the loop nest of one kernel: a root stage and the stages computed inside it.
#pragma once

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/lower/cluster.h"
#include "compiler/lower/stmt.h"
#include "compiler/schedule/bounds.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/simplify.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Elements of a root stage's buffer, padding of its packed layout included.
int64_t StoredElements(const State& state, const Bounds& bounds, int id);

class NestBuilder {
 public:
  // `place`: of the one output, where that is a part of a larger tensor.
  NestBuilder(const Skeleton& skeleton, const Bounds& bounds, const Target& target, const OutputPlace& place = {});

  // The kernel of a root stage. `next_buffer` gives ids to temporaries that are no stage's buffer.
  absl::StatusOr<KernelFunc> Build(int root, int* next_buffer);

 private:
  struct StageContext {
    std::vector<Expr> value;    // by loop id
    std::vector<Expr> leaf;     // loop variable by position
    std::vector<Expr> axis;     // real coordinate by axis
    std::vector<Expr> compact;  // own coordinate in the buffer by spatial axis
    std::vector<std::pair<Expr, Expr>>
        blocks;  // row and column of a loop over blocks in groups: variables and what they are
  };
  // What must hold where a stage's statement runs.
  struct Guards {
    std::vector<Expr> spatial, reduce, domain;
  };

  void PrepareValues(int id);
  void GroupBlocks(int id, const struct Loop& loop, const Expr& block);
  Expr AtomSum(const Terms& terms, int64_t divisor) const;
  Expr LowerExpr(int id, const Expr& e, bool* unsafe);
  bool Holds(const Expr& comparison);
  Expr LowerLoad(int id, const Expr& load, bool* unsafe);
  Expr CompactIndex(int id, const Access& access, int dim, const Expr& real) const;
  Expr StoreIndex(int id);
  Expr SumOfParts(int buffer, DType dtype, const Expr& index);
  Stmt SumOfThreadSets();
  Expr FlatIndex(int id, const std::vector<Expr>& indices) const;
  bool IsPlaced(int id) const { return !place_.whole() && state_.is_output(id); }
  Expr PlacedIndex(int id, const std::vector<Expr>& indices) const;
  Guards GuardsOf(int id);
  bool ReadsBlockAlone(int id) const;
  bool IsReducedAlong(int id, size_t axis) const;
  bool PaddingIsHarmless(int id) const;

  Stmt EmitStage(int id);
  Stmt EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner);
  Stmt EmitAttached(int id, size_t position);
  Stmt AttachedAt(int id, size_t position, bool shared);
  bool IsReadAhead(int id) const;
  std::vector<int> StagesAt(int id, size_t position) const;
  bool ReadsAny(int id, const std::vector<int>& stages) const;
  Stmt EmitInTurn(std::vector<int> stages, bool after_barrier = false);
  bool ReadsInside(int id, int producer) const;
  int64_t PipelineSlots(int id, size_t position, size_t* last) const;
  void NameSlots(int id);
  struct PipelinedLoops {
    size_t first, last;  // as one loop of iterations, and at the last of them copies are made
    size_t end;          // where the stage's own work begins
    int64_t slots;
  };
  Stmt EmitPipeline(int id, const PipelinedLoops& loops, const std::function<Stmt()>& inner);
  // Binds the loops of a pipeline's iteration around a statement.
  using AtIteration = std::function<Stmt(const Expr& iteration, Stmt body)>;
  struct BulkPipeline {
    Stmt start;   // before the loop over steps
    Stmt refill;  // behind the barrier of a step
  };
  struct Pipeline;
  BulkPipeline EmitBulkPipeline(const Pipeline& p);
  Stmt HoldBulk(int id, size_t last, const Expr& iteration, Stmt work);
  Stmt EmitReduction(int id);
  Stmt EmitCrossThread(int id);
  Stmt EmitCrossLane(int id);
  // Products on tensor cores, in tensor_products.cc.
  struct Fragments;
  Stmt EmitProducts(int id, size_t first, int buffer, const Expr& place);
  absl::Status CheckProducts(int id, size_t first);
  int64_t FragmentAt(int id, Fragments* operand, int64_t k);
  bool LinesAreNeighbours(int id, const Fragments& operand, int64_t k);
  Expr OperandLoad(int id, const Fragments& operand, const Expr& k, const Expr& line, const Expr& half);
  bool MovesWithLane(int id, const Expr& load, int lane);
  // Products by warpgroups, in group_products.cc.
  class GroupEmitter;
  Stmt EmitGroupProducts(int id, size_t first, int buffer, const Expr& place);
  Stmt EmitSmallParts(int copy, const Expr& iteration, int64_t slots);
  bool IsPublished(int id) const;
  Stmt FinishCoreMatrices(int id, size_t position, const Expr& iteration, int64_t slots);
  // A software pipeline over loops of a stage. `inner`: its loops from position `end` on.
  struct Pipeline {
    int id;
    size_t last, end;  // the innermost of these loops, at which copies are made; where the stage's own products begin
    int64_t slots, iterations;
    Expr step, fill, use;  // variables: of the loop over steps, and the slots that are filled and read
    AtIteration at;
    std::function<Stmt()> inner;
  };
  Stmt EmitGroupPipeline(const Pipeline& p);
  struct CarriedStep {
    std::function<Stmt(const Expr& iteration)> copies;  // that come ahead
    std::vector<int> made;                              // the other stages of a step, in turn
  };
  Stmt EmitCarriedGroupPipeline(const Pipeline& p, const CarriedStep& carried);
  // Copies a tile at a time, in bulk_copies.cc.
  std::vector<int> BulkCopiesAt(int id, size_t position) const;
  absl::Status CheckBulkCopy(int copy);
  Expr BulkBarrier(int copy, const Expr& slot);
  Stmt BulkCopyOf(int copy, const Expr& slot);
  Stmt ByOneThread(int copy, Stmt stmt) const;
  Stmt AttachedBulkOnce(int id, size_t position, bool wait);
  Stmt Loop(int id, size_t position, Stmt body);
  Stmt OverThreadSets(const Expr& var, int64_t extent, Stmt body);
  Stmt SpatialNest(int id, size_t first, const std::function<Stmt(const VarMap&)>& make);
  size_t RegisterPosition(int id, size_t first) const;
  bool HasReduction(int id, size_t from) const;
  // Registers of lanes (Memory::kLanes), in lane_registers.cc.
  bool IsHeldByLanes(int id) const;
  int64_t ElementsOf(int id) const;
  Expr RegisterOf(int id, const std::vector<Expr>& values);
  void AddDigits(int id, int loop, const Expr& value, std::vector<Expr>* values);
  Expr ThreadOf(int id) const;
  Expr LoadFromLanes(int reader, const Expr& load, const std::vector<Expr>& indices);
  Stmt WithShuffles(int id, std::vector<Stmt> shuffles, bool by_all, Stmt stmt);
  // Carried reductions (StepKind::kCarry), in carried_reductions.cc.
  Expr GrowthOf(int id);
  Expr MayGrow(int maximum) const;
  Stmt BeginCarried(int carrier);
  Stmt BeginCarriedStage(int id);
  Stmt WithGrowth(int id, size_t first, const Expr& index, const std::vector<Expr>& guards, Stmt maximum);
  bool InSerialLoops(int id, size_t first) const;
  bool OnTensorCores(int id) const;
  bool OnWarpgroups(int id) const;
  Stmt WithAllocations(Stmt body);
  ForKind KindOf(int id, size_t position) const;
  bool EndsOuter(int id, size_t position) const;
  void MarkUnrolled(int id);

  const Skeleton& skeleton_;
  const State& state_;
  const Bounds& bounds_;
  const Target& target_;
  const OutputPlace place_;
  Analyzer analyzer_;
  std::vector<StageContext> context_;
  std::vector<std::vector<uint8_t>> unrolled_;  // by stage and position
  std::vector<std::unordered_map<const ExprNode*, const Access*>> access_of_;
  std::vector<BufferDecl> temporaries_;
  int* next_buffer_ = nullptr;
  int root_ = -1;
  int64_t threads_ = 1, blocks_ = 1;
  ClusterSplit split_;
  Expr rank_;        // of the block in its cluster
  Expr thread_set_;  // of the thread: its number
  int serial_depth_ = 0;
  std::vector<int>
      arrivals_;  // by stage: barriers where its tiles arrive (bulk copies on cuda); -1 where there are none
  std::vector<int>
      small_parts_;  // by stage: buffer of the small parts of a copy in core matrices; -1 where there are none
  // By stage, of the maximum of carried reductions (StepKind::kCarry): buffer of exp(the maximum before - now); else
  // -1.
  std::vector<int> growth_;
  Expr group_iteration_;  // of a pipeline of products by warpgroups: which of the two buffers of small parts is read
  // What the next EmitGroupProducts leaves to the pipeline, in group_products_ and group_end_: the wait for its sums,
  // or the products too.
  enum class Defer : uint8_t { kNothing, kEnd, kProducts };
  Defer defer_group_ = Defer::kNothing;
  Stmt group_products_, group_end_;
  Stmt group_behind_;  // products that run behind those which are emitted next, while these are waited for
  Stmt group_after_;   // what comes next, once the sums of those are there
  std::vector<Expr> write_slot_,
      read_slot_;                 // by stage: which of a pipelined copy's buffers is filled, is read; else null
  std::vector<Stmt> shuffles_;    // that the expression which was lowered last needs in front of its statement
  std::vector<Expr> conditions_;  // of the branches around the expression that is lowered
  absl::Status status_;
};

}  // namespace diapason
