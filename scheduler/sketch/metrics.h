// What a candidate's numbers say of it: legality, work, traffic, parallelism, an analytic time and the features of the
// cost model (docs/architecture.md, decision 11). Everything comes from Bounds; no IR is built.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "compiler/schedule/bounds.h"
#include "compiler/tensor/target.h"
#include "scheduler/space.h"

namespace diapason {

// Private tiles of a core, which are on the stack of its thread.
inline constexpr int64_t kStackBytes = 256 << 10;

// Facts of a skeleton that do not depend on the configuration, gathered once.
class MetricsModel {
 public:
  MetricsModel(const Skeleton* skeleton, const Target& target, const DeviceFacts& facts);

  // Resources of one kernel.
  struct Resources {
    int root = -1;
    int64_t blocks = 1, threads = 1;
    int64_t cluster = 1;      // blocks of a cluster that share a reduction
    int64_t thread_sets = 1;  // sets of a block's threads that share it
    int64_t shared_bytes = 0;
    int64_t local_elements = 0;  // accumulators and other private buffers of a thread
    int64_t local_bytes = 0;
    int64_t unrolled = 1;  // largest product of unrolled loops of one statement
  };
  // The roots of the kernels, those of the prologue left out.
  const std::vector<int>& roots() const { return roots_; }
  // Only what limits need: cheap.
  Resources ResourcesOf(const Bounds& bounds, int kernel) const;
  void ResourcesOf(const Bounds& bounds, std::vector<Resources>* kernels) const;
  bool WithinLimits(const Resources& kernel) const;

  // Times that the statement of a stage runs, over the whole kernel.
  double Executions(const Bounds& bounds, int stage) const;

  void Evaluate(const Bounds& bounds, absl::Span<const int32_t> configuration, const std::vector<Resources>& kernels,
                Metrics* metrics) const;

 private:
  const std::vector<int>& MembersOf(const Resources& kernel) const {
    return members_[std::find(roots_.begin(), roots_.end(), kernel.root) - roots_.begin()];
  }
  static double Log2(double x) { return std::log2(1.0 + std::max(0.0, x)); }
  // Position from which on all loops are unrolled or vectorised: the body that runs without a branch.
  static int BodyPosition(const StageState& stage);
  struct Work {
    double executions = 0;       // of the statement
    double warp_executions = 0;  // gpu: by the warps of one block, less what is folded away
    double operations = 0;       // arithmetic operations of one execution
    double body = 1;             // executions of one pass over the unrolled body
    double operand_loads = 0;    // distinct elements that one pass over the body reads
    double vector_loads = 0;     // cpu: of them, loads of vectors (the others are broadcasts)
    double lanes = 1;            // vector lanes
    double vector_ok = 1;        // 0: an access strides across lanes
    double conflict = 1;         // shared memory bank conflicts, worst access
    double shared_loads = 0;     // instructions of one pass over the body that read shared memory
    double wavefronts = 0;       // of shared memory, that they take
    double other_loads = 0;      // elements of operands elsewhere that one pass over the body reads
    double bytes = 0;            // from global memory, over the kernel
    double unique_bytes = 0;     // distinct bytes of those
    double contiguous = 1;       // elements in a row of a copy
    double barriers = 0;
  };
  void StageWork(const Bounds& bounds, int stage, Work* work) const;
  double Footprint(const Bounds& bounds, const Access& access, int from_position) const;
  struct WarpLoad {
    double conflict, different;
  };
  WarpLoad LoadOfWarp(const Bounds& bounds, const Access& access) const;
  WarpLoad LoadOfFragment(const Bounds& bounds, const Access& access) const;
  double LanesOfLoad(const Bounds& bounds, const Access& access, int body) const;
  // In metrics_gpu.cc.
  struct GpuWork;
  void AddReduction(const Bounds& bounds, const Resources& kernel, int stage, const Work& work, GpuWork* sum) const;
  void AddCopy(const Bounds& bounds, int stage, const Work& work, GpuWork* sum) const;
  void AddBulkCopy(const Bounds& bounds, int stage, const Work& work, GpuWork* sum) const;
  void AddSumOfParts(const Resources& kernel, const Work& work, GpuWork* sum) const;
  GpuWork GpuWorkOf(const Bounds& bounds, const Resources& kernel) const;
  double ResidentBlocks(const Resources& kernel) const;
  double GpuSeconds(const Bounds& bounds, const Resources& kernel, float* features) const;
  // In metrics_cpu.cc.
  double CpuSeconds(const Bounds& bounds, absl::Span<const int32_t> configuration, const Resources& kernel,
                    float* features) const;
  // Bytes of the tensors that a stage reads, each once, and of these the constants.
  struct Operands {
    double bytes = 0, constant_bytes = 0;
  };
  Operands OperandsOf(int stage) const;
  int64_t PartsOf(const Bounds& bounds, int stage) const;
  int64_t RepeatsInCluster(const Bounds& bounds, int id) const;

  const Skeleton* skeleton_;
  Target target_;
  DeviceFacts facts_;
  std::vector<int> roots_;                 // of kernels, prologue left out
  std::vector<std::vector<int>> members_;  // stages computed in each kernel, by index into roots_
  std::vector<std::vector<int>>
      distinct_;  // by stage: its accesses without those that read the same elements as an earlier one
  std::vector<double> operations_;   // arithmetic of a stage's body, by stage
  std::vector<int64_t> in_a_row_;    // by stage: what it copies side by side (ElementsInARow in metrics.cc)
  std::vector<uint8_t> is_maximum_;  // by stage: of carried reductions (StepKind::kCarry)
  std::vector<int>
      summed_;  // by stage: the reduction over a cluster or sets of threads whose partial results it holds; -1: none
  std::vector<uint8_t> held_;  // by stage: a copy of shared memory in registers
  std::vector<double> share_;  // of its iterations that are left after constants are folded, by stage
};

}  // namespace diapason
