#include "bench/evaluate.h"

#include "base/check.h"

namespace diapason {

absl::StatusOr<std::unique_ptr<Executable>> Prepare(Device& device, const Program& program,
                                                    const std::map<int, Array>& inputs) {
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, Executable::Create(device, program));
  RETURN_IF_ERROR(executable->AllocateRest());
  for (const auto& [id, array] : inputs) {
    const int index = executable->BufferOfStage(id);
    if (index < 0) continue;
    RETURN_IF_ERROR(
        device.CopyIn(*executable->buffer(index), array.data.data(), static_cast<int64_t>(array.data.size())));
  }
  RETURN_IF_ERROR(executable->RunPrologue());
  return executable;
}

absl::StatusOr<Array> RunForOutput(Device& device, Executable& executable, const ComputeDag& dag) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, executable.MakePlan());
  RETURN_IF_ERROR(plan->Run());
  const int id = dag.outputs()[0];
  Array values(dag.stage(id).dtype, dag.stage(id).shape());
  RETURN_IF_ERROR(device.CopyOut(values.data.data(), *executable.buffer(executable.BufferOfStage(id)),
                                 static_cast<int64_t>(values.data.size())));
  return values;
}

}  // namespace diapason
