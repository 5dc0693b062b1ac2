// Runs a candidate on a device and compares it with the interpreter.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/fill.h"
#include "compiler/tensor/check.h"
#include "compiler/tensor/interpret.h"

namespace diapason::testing {

struct Reference {
  std::map<int, Array> inputs;
  std::vector<Array> outputs;
};

inline Reference MakeReference(const ComputeDag& dag, uint64_t seed) {
  Reference reference;
  for (int id : dag.inputs()) {
    Array array(dag.stage(id).dtype, dag.stage(id).shape());
    FillRandom(array, seed + static_cast<uint64_t>(id), dag.stage(id).valid_min, dag.stage(id).valid_max);
    reference.inputs[id] = array;
  }
  reference.outputs = Interpret(dag, reference.inputs).value();
  return reference;
}

// Empty if the program computes the reference; else what went wrong.
inline std::string CompareOnDevice(Device& device, const Program& program, const ComputeDag& dag, const Reference& reference,
                                   double tolerance = 1e-4) {
  auto executable = Executable::Create(device, program);
  if (!executable.ok()) return std::string(executable.status().message());
  if (auto s = (*executable)->AllocateRest(); !s.ok()) return std::string(s.message());
  if (auto s = FillForMeasuring(**executable, 1); !s.ok()) return std::string(s.message());
  for (const auto& [stage, array] : reference.inputs) {
    const int index = (*executable)->BufferOfStage(stage);
    if (index < 0) continue;  // not read by any kernel
    if (auto s = device.CopyIn(*(*executable)->buffer(index), array.data.data(), array.data.size()); !s.ok())
      return std::string(s.message());
  }
  if (auto s = (*executable)->RunPrologue(); !s.ok()) return std::string(s.message());
  auto plan = (*executable)->MakePlan();
  if (!plan.ok()) return std::string(plan.status().message());
  if (auto s = (*plan)->Run(); !s.ok()) return std::string(s.message());
  for (size_t o = 0; o < dag.outputs().size(); ++o) {
    const Array& expected = reference.outputs[o];
    Array got(expected.dtype, expected.shape);
    const int index = (*executable)->BufferOfStage(dag.outputs()[o]);
    if (auto s = device.CopyOut(got.data.data(), *(*executable)->buffer(index), got.data.size()); !s.ok())
      return std::string(s.message());
    double largest = 1e-30;
    for (int64_t i = 0; i < expected.elements(); ++i) largest = std::max(largest, std::abs(expected.at(i)));
    for (int64_t i = 0; i < expected.elements(); ++i)
      if (!(std::abs(got.at(i) - expected.at(i)) <= tolerance * largest))
        return absl::StrCat("output ", o, " element ", i, " is ", got.at(i), ", not ", expected.at(i));
  }
  return "";
}

}  // namespace diapason::testing
