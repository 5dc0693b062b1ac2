// The analytic estimate and the features of a kernel on a GPU.
#pragma once

#include "compiler/schedule/bounds.h"
#include "compiler/tensor/target.h"
#include "scheduler/sketch/kernel_resources.h"
#include "scheduler/sketch/work_of_stage.h"

namespace diapason {

// Of one kernel, from the work of its stages. State, facts and resources outlive it.
class GpuEstimate {
 public:
  GpuEstimate(const State& state, TargetKind kind, const DeviceFacts& facts, const KernelResources& kernel);

  struct Stage {
    int id;
    double share;  // of its iterations that are left after constants are folded
    bool held;     // a copy of shared memory in registers
  };
  // `work.warp_executions` is filled in here.
  void Add(const Stage& stage, const StageBounds& bounds, WorkOfStage work);
  // Of all that was added. Writes the features, kGpuFeatureNames of them.
  double Seconds(float* features) const;

 private:
  // Times are of one block, in instructions or wavefronts of warps.
  struct Sum {
    double blocks, threads, warps;  // of the kernel; threads and warps of a block
    double fma = 0, issue = 0, shared_time = 0;
    double bytes = 0, unique = 0, operations = 0;
    double depth = 0;              // of a step of products by warpgroups; 0: there are none
    double slots = 1, rounds = 1;  // of copies of shared memory: buffers each, steps
    double copy_rounds = 0;        // most vectors that a thread copies in a step
    double loads_per_op = 0, ilp = 1, conflict = 1, contiguous = 1, lanes = 1, body = 1;
  };
  void AddReduction(int id, const StageBounds& b, const WorkOfStage& w);
  // Of elements into shared memory by the threads of a block.
  void AddCopy(int id, const StageBounds& b, const WorkOfStage& w);
  // One thread asks for a tile, all look whether it has come.
  void AddBulkCopy(const StageBounds& b, const WorkOfStage& w);
  // Each element that is written is read from all blocks of a cluster first, or from all sets of threads.
  void AddSumOfParts(const WorkOfStage& w);
  // Blocks that a multiprocessor holds at once.
  double ResidentBlocks() const;

  const State& state_;
  const TargetKind kind_;
  const DeviceFacts& facts_;
  const KernelResources& kernel_;
  Sum sum_;
};

}  // namespace diapason
