// Runs lowered nests without compiling them: threads, clusters and the lanes of tensor cores as they are on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/lower/stmt.h"
#include "compiler/tensor/compare.h"
#include "compiler/tensor/program.h"
#include "tests/codegen/reference.h"
#include "tests/scheduler/sketch/execute.h"

namespace diapason::testing {

// All buffers behind a run on the reference's inputs, by id; what nobody has written is NaN.
inline std::map<int, std::vector<double>> BuffersBehind(const LoweredProgram& lowered, const Reference& expected) {
  NestRunner device;
  for (const auto& [id, buffer] : lowered.buffers) {
    std::vector<double>& contents = device.buffers[id];
    contents.assign(buffer.decl.elements, std::nan(""));
    const auto input = expected.inputs.find(buffer.stage);
    if (input == expected.inputs.end()) continue;
    for (int64_t i = 0; i < input->second.elements(); ++i) contents[i] = input->second.at(i);
  }
  for (const KernelFunc& prepare : lowered.prologue) device.Run(prepare);
  for (const KernelFunc& kernel : lowered.kernels) device.Run(kernel);
  return std::move(device.buffers);
}

// The program's only output.
inline std::vector<double> RunNest(const LoweredProgram& lowered, const Reference& expected) {
  std::map<int, std::vector<double>> buffers = BuffersBehind(lowered, expected);
  for (const auto& [id, buffer] : lowered.buffers)
    if (buffer.role == static_cast<int>(BufferRole::kOutput)) return std::move(buffers[id]);
  return {};
}

// Fails the running test if the program's output is not the reference's.
inline void ExpectNestComputes(const LoweredProgram& lowered, const Reference& expected, double tolerance = 1e-4) {
  const std::vector<double> got = RunNest(lowered, expected);
  ASSERT_GE(static_cast<int64_t>(got.size()), expected.outputs[0].elements());
  for (int64_t i = 0; i < expected.outputs[0].elements(); ++i)
    ASSERT_NEAR(got[i], expected.outputs[0].at(i), tolerance) << ToString(lowered.kernels[0]);
}

// Empty if the program's output is within the tolerance of verification for a target with -tf32; else what is wrong.
inline std::string CompareNest(const LoweredProgram& lowered, const ComputeDag& dag, const Reference& expected,
                               double tf32) {
  const std::vector<double> got = RunNest(lowered, expected);
  Array output(expected.outputs[0].dtype, expected.outputs[0].shape);
  for (int64_t i = 0, n = output.elements(); i < n; ++i) output.set(i, got.at(i));
  const Comparison result = Compare(output, expected.outputs[0], ToleranceOf(dag, 0, {}, tf32));
  if (result.ok) return "";
  return absl::StrCat("relative error ", result.max_rel_error, ", allowed is ", result.tolerance);
}

}  // namespace diapason::testing
