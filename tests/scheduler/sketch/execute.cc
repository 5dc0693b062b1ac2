#include "tests/scheduler/sketch/execute.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/reference.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/fill.h"
#include "compiler/tensor/compare.h"
#include "compiler/tensor/interpret.h"

namespace diapason::testing {
namespace {

std::map<int, Array> RandomInputs(const ComputeDag& dag, uint64_t seed) {
  std::map<int, Array> inputs;
  for (int id : dag.inputs()) inputs[id] = RandomInput(dag, id, seed);
  return inputs;
}

double Largest(const Array& array) {
  double largest = 0;
  for (int64_t i = 0; i < array.elements(); ++i) largest = std::max(largest, std::abs(array.at(i)));
  return largest;
}

absl::Status FillBuffers(Executable& executable, const std::map<int, Array>& inputs) {
  const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
  for (size_t i = 0; i < buffers.size(); ++i)
    RETURN_IF_ERROR(executable.device().Fill(*executable.buffer(static_cast<int>(i)), 0xff));
  for (const auto& [stage, array] : inputs) {
    const int index = executable.BufferOfStage(stage);
    if (index < 0) continue;  // not read by any kernel
    RETURN_IF_ERROR(executable.device().CopyIn(*executable.buffer(index), array.data.data(),
                                               static_cast<int64_t>(array.data.size())));
  }
  return absl::OkStatus();
}

}  // namespace

Reference MakeReference(const ComputeDag& dag, uint64_t seed) {
  Reference reference;
  reference.inputs = RandomInputs(dag, seed);
  reference.outputs = Interpret(dag, reference.inputs).value();
  return reference;
}

absl::StatusOr<Reference> MakeReferenceOnDevice(Device& device, const Target& target, const ComputeDag& dag,
                                                uint64_t seed) {
  Reference reference;
  reference.inputs = RandomInputs(dag, seed);
  ASSIGN_OR_RETURN(const Program program, CompileReference(dag, target));
  ASSIGN_OR_RETURN(reference.outputs, RunOnDevice(device, program, dag, reference.inputs));
  return reference;
}

absl::StatusOr<std::vector<Array>> RunOnDevice(Device& device, const Program& program, const ComputeDag& dag,
                                               const std::map<int, Array>& inputs) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, Executable::Create(device, program));
  RETURN_IF_ERROR(executable->AllocateRest());
  RETURN_IF_ERROR(FillBuffers(*executable, inputs));
  RETURN_IF_ERROR(executable->RunPrologue());
  ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, executable->MakePlan());
  RETURN_IF_ERROR(plan->Run());
  std::vector<Array> outputs;
  for (int id : dag.outputs()) {
    Array got(dag.stage(id).dtype, dag.stage(id).shape());
    RETURN_IF_ERROR(device.CopyOut(got.data.data(), *executable->buffer(executable->BufferOfStage(id)),
                                   static_cast<int64_t>(got.data.size())));
    outputs.push_back(std::move(got));
  }
  return outputs;
}

std::string CompareOnDevice(Device& device, const Program& program, const ComputeDag& dag, const Reference& reference,
                            std::optional<double> tolerance) {
  const auto outputs = RunOnDevice(device, program, dag, reference.inputs);
  if (!outputs.ok()) return std::string(outputs.status().message());
  for (size_t o = 0; o < outputs->size(); ++o) {
    const Array &expected = reference.outputs[o], &got = (*outputs)[o];
    Tolerance allowed = ToleranceOf(dag, static_cast<int>(o));
    if (tolerance.has_value()) allowed = {*tolerance, Largest(expected)};
    const Comparison result = Compare(got, expected, allowed);
    if (!result.ok)
      return absl::StrCat("output ", o, " element ", result.worst, " is ", got.at(result.worst), ", not ",
                          expected.at(result.worst), " (allowed error ", result.allowed, ")");
  }
  return "";
}

}  // namespace diapason::testing
