#include "ui/task_facts.h"

#include <algorithm>

#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/dtype.h"
#include "compiler/tensor/serialize.h"
#include "compiler/tensor/target.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

double BytesOfStage(const Stage& stage) { return static_cast<double>(stage.elements()) * BytesOf(stage.dtype); }

// Of the fastest instructions that the architecture has, for each way to multiply.
void AddTensorCores(const Target& target, double flops, Roofs& roofs) {
  const int arch = CudaArchNumber(target.arch);
  double three_tf32 = 0, half = 0, byte = 0;
  for (const TensorIntrinsic& intrinsic : TensorIntrinsics()) {
    if (intrinsic.first_arch > arch || (intrinsic.groups && arch != intrinsic.first_arch)) continue;
    double& rate = intrinsic.parts ? three_tf32 : IsFloat(intrinsic.sum) ? half : byte;
    rate = std::max(rate, flops / intrinsic.fma);
  }
  if (three_tf32 > 0 && !target.strict_fp32) roofs.compute.push_back({"float32 as 3xTF32", three_tf32});
  if (half > 0) roofs.compute.push_back({"float16 on tensor cores", half});
  if (byte > 0) roofs.compute.push_back({"int8 on tensor cores", byte});
}

}  // namespace

std::optional<TaskFacts> FactsOfWorkload(const std::string& workload) {
  const absl::StatusOr<ComputeDag> dag = ParseDag(workload);
  if (!dag.ok()) return std::nullopt;
  TaskFacts facts;
  facts.flops = dag->flops();
  for (const Stage& stage : dag->stages())
    if (stage.placeholder) facts.bytes += BytesOfStage(stage);
  for (int output : dag->outputs()) {
    facts.bytes += BytesOfStage(dag->stage(output));
    facts.dtype = NameOf(dag->stage(output).dtype);
  }
  return facts;
}

std::optional<Roofs> RoofsOf(const std::string& target, const std::string& device_model) {
  const absl::StatusOr<Target> parsed = Target::Parse(target);
  if (!parsed.ok() || parsed->kind == TargetKind::kOpenCl) return std::nullopt;
  const DeviceFacts facts = DefaultFacts(*parsed);
  if (facts.model != device_model) return std::nullopt;
  Roofs roofs;
  roofs.compute.push_back({"float32", facts.flops});
  if (parsed->kind == TargetKind::kCuda) AddTensorCores(*parsed, facts.flops, roofs);
  roofs.bytes_per_second = facts.bandwidth;
  return roofs;
}

}  // namespace diapason
