// Copies of a pipeline that are made by tensor copies (StepKind::kTensorCopy): one thread asks for the boxes of an
// iteration, which arrive at a barrier of their slot (mbarrier), and each thread waits there before it reads. With a
// producer (HasProducer), that is a thread of a warpgroup of its own, which waits at another barrier of the slot until
// all warps that read it have left it; else whoever asks knows it from a barrier of the block.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/lower/nest_state.h"
#include "compiler/lower/software_pipeline.h"

namespace diapason {

// Who asks: the values of StepKind::kProducer. Constants that come first need not wait for the kernel in front, where
// this one starts before that has ended (early_start.h); but what is computed comes behind all that is asked for
// before, so that it is a choice how many come first. Where the kernel does not start early, or nothing or everything
// that it copies is constant, all orders are kInOrder.
enum class Producer : uint8_t {
  kNone = 0,                  // a thread of those that compute
  kInOrder = 1,               // the producer, step by step
  kOneConstantFirst = 2,      // the constants of the first step
  kHalfOfConstantsFirst = 3,  // those of half as many steps as there are slots
  kConstantsFirst = 4,        // of as many as there are slots
};

// REQUIRES, of all: the stages at whose loops the copies are made are prepared (LoopValues).
class TensorCopies {
 public:
  explicit TensorCopies(NestState* nest) : nest_(*nest) {}

  // Whether a stage is made so.
  bool Makes(int copy) const { return !nest_.kernel.state.stage(copy).bulk && nest_.buffers.arrivals(copy) >= 0; }
  // Of the tile at which the loops stand, into the slot that is filled.
  Stmt CopyInto(int copy);

  std::vector<int> CopiesOf(const SoftwarePipeline& pipeline) const;

  // What comes before all copies of a pipeline.
  Stmt Init(const SoftwarePipeline& pipeline);
  // Until the boxes of an iteration, those of `copies`, have arrived. Their slots must be known to be initialised:
  // behind a barrier.
  Stmt Await(const SoftwarePipeline& pipeline, const Expr& iteration, const std::vector<int>& copies);
  Stmt Await(const SoftwarePipeline& pipeline, const Expr& iteration) {
    return Await(pipeline, iteration, CopiesOf(pipeline));
  }
  // The executing warp has left the slots of an iteration, if the condition holds (null: it does).
  Stmt Leave(const SoftwarePipeline& pipeline, const Expr& iteration, const std::vector<int>& copies,
             const Expr& condition = nullptr);
  // Leaves what the producer does to NestState.
  void Produce(const SoftwarePipeline& pipeline);
  // Whether threads make other copies of the pipeline, which end at waits for groups.
  bool HasCopiesByThreads(const SoftwarePipeline& pipeline) const;

 private:
  // The barrier of a slot at which warps say that they have left it.
  Expr LeavingsAt(int copy, const SoftwarePipeline& pipeline, const Expr& slot) const;
  // Whether the executing thread is the one that asks.
  Expr IsFirstThread(int copy) const;
  // Whether a copy is of what no kernel of a run writes.
  bool IsOfConstant(int copy) const;
  // The number of iterations whose constants the producer asks for before anything else.
  int64_t ConstantsFirst(const SoftwarePipeline& pipeline, const std::vector<int>& copies) const;

  NestState& nest_;
};

}  // namespace diapason
