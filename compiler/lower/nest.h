// Emits the loop nest of one kernel: a root stage and the stages computed inside it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/lower/kernel_context.h"
#include "compiler/lower/nest_parts.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class NestBuilder {
 public:
  // `next_buffer` gives ids to temporaries that are no stage's buffer; it goes on for the next kernel.
  NestBuilder(const KernelContext& kernel, int* next_buffer);

  // Once, of the context's root stage.
  absl::StatusOr<KernelFunc> Build();

 private:
  Stmt EmitStage(int id);
  Stmt EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner);
  Stmt EmitAttached(int id, size_t position);
  Stmt AttachedAt(int id, size_t position, bool shared);
  Stmt EmitInTurn(std::vector<int> stages, bool after_barrier = false);
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
  absl::Status CheckBulkCopy(int copy);
  Expr BulkBarrier(int copy, const Expr& slot);
  Stmt BulkCopyOf(int copy, const Expr& slot);
  Stmt ByOneThread(int copy, Stmt stmt) const;
  Stmt AttachedBulkOnce(int id, size_t position, bool wait);
  // Carried reductions (StepKind::kCarry), in carried_reductions.cc.
  Expr GrowthOf(int id);
  Expr MayGrow(int maximum) const;
  Stmt BeginCarried(int carrier);
  Stmt BeginCarriedStage(int id);
  Stmt WithGrowth(int id, size_t first, const Expr& index, const std::vector<Expr>& guards, Stmt maximum);

  const KernelContext& kernel_;
  const Skeleton& skeleton_;
  const State& state_;
  const Bounds& bounds_;
  const ClusterSplit& split_;
  NestParts parts_;
  NestState& nest_;
  Analyzer& analyzer_;
  Expr group_iteration_;  // of a pipeline of products by warpgroups: which of the two buffers of small parts is read
  // What the next EmitGroupProducts leaves to the pipeline, in group_products_ and group_end_: the wait for its sums,
  // or the products too.
  enum class Defer : uint8_t { kNothing, kEnd, kProducts };
  Defer defer_group_ = Defer::kNothing;
  Stmt group_products_, group_end_;
  Stmt group_behind_;  // products that run behind those which are emitted next, while these are waited for
  Stmt group_after_;   // what comes next, once the sums of those are there
};

}  // namespace diapason
