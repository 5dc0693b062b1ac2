// The analytic estimate and the features of a kernel on a GPU.
#pragma once

#include "compiler/schedule/bounds.h"
#include "compiler/tensor/target.h"
#include "scheduler/sketch/kernel_resources.h"
#include "scheduler/sketch/work_of_stage.h"

namespace diapason {

// The estimate of one kernel from the work of its stages. The arguments of the constructor must outlive it.
class GpuEstimate {
 public:
  GpuEstimate(const State& state, TargetKind kind, const DeviceFacts& facts, const KernelResources& kernel);

  struct Stage {
    int id;
    double share;  // fraction of its iterations that remains after constants are folded
    bool held;     // it copies shared memory to registers
  };
  // Adds a stage. `work.warp_executions` is computed here.
  void Add(const Stage& stage, const StageBounds& bounds, WorkOfStage work);
  // The estimate for all stages that were added. Writes one feature for each of kGpuFeatureNames.
  double Seconds(float* features) const;

 private:
  // Times are for one block, in instructions or wavefronts of warps.
  struct Sum {
    double blocks, threads, warps;  // of the kernel; threads and warps of a block
    double fma = 0, issue = 0, shared_time = 0;
    double bytes = 0, unique = 0, operations = 0;
    double depth = 0;              // k of a step of warpgroup MMA; 0: there is none
    double slots = 1, rounds = 1;  // of copies to shared memory: buffers of each, and steps
    bool boxes = false;            // tensor copies make some of them
    bool by_warps = false;         // products on tensor cores, each by a warp
    double copy_rounds = 0;        // most vectors that a thread copies in a step
    double loads_per_op = 0, ilp = 1, conflict = 1, contiguous = 1, lanes = 1, body = 1;
  };
  void AddReduction(int id, const StageBounds& b, const WorkOfStage& w);
  // A copy of elements to shared memory by the threads of a block.
  void AddCopy(int id, const StageBounds& b, const WorkOfStage& w);
  // One thread starts the copy of a tile, and all threads wait for it.
  void AddBulkCopy(const StageBounds& b, const WorkOfStage& w);
  // A stage that sums each element over all blocks of a cluster, or over all sets of threads, before it stores it.
  void AddSumOfParts(const WorkOfStage& w);
  // Resident blocks of a multiprocessor.
  double ResidentBlocks() const;

  const State& state_;
  const TargetKind kind_;
  const DeviceFacts& facts_;
  const KernelResources& kernel_;
  Sum sum_;
};

}  // namespace diapason
