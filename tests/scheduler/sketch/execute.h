// Runs a candidate on a device and compares it with a reference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/program.h"

namespace diapason::testing {

struct Reference {
  std::map<int, Array> inputs;  // by stage
  std::vector<Array> outputs;
};

// Random inputs and what the interpreter makes of them: for small tensors.
Reference MakeReference(const ComputeDag& dag, uint64_t seed);
// The same with the compiled reference implementation, on the device.
absl::StatusOr<Reference> MakeReferenceOnDevice(Device& device, const Target& target, const ComputeDag& dag,
                                                uint64_t seed);

// Runs the program on the reference's inputs, with NaNs in all that it has to write, and returns its outputs.
absl::StatusOr<std::vector<Array>> RunOnDevice(Device& device, const Program& program, const ComputeDag& dag,
                                               const std::map<int, Array>& inputs);

// Empty if the program computes the reference; else what went wrong. Outputs are compared by compiler/tensor/compare.h,
// or, with `tolerance`, may be off by this share of the reference's largest value.
std::string CompareOnDevice(Device& device, const Program& program, const ComputeDag& dag, const Reference& reference,
                            std::optional<double> tolerance = std::nullopt);

}  // namespace diapason::testing
