// What a candidate's numbers say of it: legality, work, traffic, parallelism, an analytic time and the features of the
// cost model (docs/architecture.md, decision 11). Everything comes from Bounds; no IR is built.
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/schedule/bounds.h"
#include "compiler/tensor/target.h"
#include "scheduler/sketch/kernel_resources.h"
#include "scheduler/sketch/work_of_stage.h"
#include "scheduler/space.h"

namespace diapason {

// Facts of a skeleton that do not depend on the configuration, gathered once.
class MetricsModel {
 public:
  MetricsModel(const Skeleton* skeleton, const Target& target, const DeviceFacts& facts);

  using Resources = KernelResources;
  // The roots of the kernels, those of the prologue left out.
  const std::vector<int>& roots() const { return roots_; }
  // Only what limits need: cheap.
  Resources ResourcesOf(const Bounds& bounds, int kernel) const;
  void ResourcesOf(const Bounds& bounds, std::vector<Resources>* kernels) const;
  bool WithinLimits(const Resources& kernel) const { return diapason::WithinLimits(kernel, target_, facts_); }

  // Times that the statement of a stage runs, over the whole kernel.
  double Executions(const Bounds& bounds, int stage) const;

  void Evaluate(const Bounds& bounds, absl::Span<const int32_t> configuration, const std::vector<Resources>& kernels,
                Metrics* metrics) const;

 private:
  const std::vector<int>& MembersOf(const Resources& kernel) const {
    return members_[std::find(roots_.begin(), roots_.end(), kernel.root) - roots_.begin()];
  }
  // Position from which on all loops are unrolled or vectorised: the body that runs without a branch.
  static int BodyPosition(const StageState& stage);
  using Work = WorkOfStage;
  void StageWork(const Bounds& bounds, int stage, Work* work) const;
  double Footprint(const Bounds& bounds, const Access& access, int from_position) const;
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
