// Is what a package computes right? Compared with the naive evaluation of the same network on the same inputs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/tensor/array.h"

namespace diapason {

struct CheckResult {
  bool ok = false;
  double max_abs_error = 0;
  double max_rel_error = 0;  // largest error of an output relative to that output's largest magnitude
  std::string worst;         // the output it is in, and where: "'logits' at element 17: 3.25 instead of 3.5"
};

// An output is right when its largest error is within this share of its largest magnitude: 1e-4 for float32, 1e-2 for
// float16, 1e-9 for float64; 0 for integers, which must be equal.
double ToleranceOf(DType dtype);

// Compares outputs with their references, pairwise. Infinities and NaNs must be where they are in the reference; their
// absence counts as an infinite error. REQUIRES: same types and shapes.
CheckResult CompareOutputs(const std::vector<PackagePort>& ports, const std::vector<Array>& got,
                           const std::vector<Array>& want);

// The outputs of a package's network by naive kernels (codegen/naive.h), which share nothing with scheduled code. They
// are compiled for `device`, a cuda device or a cpu, and run there one task after the other. Takes seconds. Unavailable
// when there is no compiler.
absl::StatusOr<std::vector<Array>> EvaluateNaively(const Package& package, Device& device,
                                                   const std::map<std::string, Array>& inputs);

// Runs the loaded package on the inputs and compares. The reference is evaluated on the runner's device for cuda, on
// the cpu otherwise.
absl::StatusOr<CheckResult> CheckPackage(PackageRunner& runner, const std::map<std::string, Array>& inputs);

}  // namespace diapason
