// Is what a package computes right? Compared with the reference implementation of the same network on the same inputs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compare.h"

namespace diapason {

struct CheckResult {
  bool ok = false;
  double max_abs_error = 0;
  // Of the output that comes closest to its tolerance, or exceeds it most: the largest error relative to the larger of
  // the element and the output's root mean square (Comparison, compiler/tensor/compare.h), and what is allowed.
  double max_rel_error = 0, tolerance = 0;
  std::string worst;  // that output, and where: "'logits' at element 17: 3.25 instead of 3.5"
};

// What a network should compute, and how far off a correct evaluation may be: rounding errors pass through the tasks in
// order, each of which adds its own (ToleranceOf, with the magnitudes that the tensors have). Behind exponentials and
// quotients of many layers such bounds become useless. A bound above kLargestBound is replaced by a measured one: the
// network is evaluated a second time with a random error added to every element of every task's result that is not 0,
// as large as that task alone allows (at most 1e-4 of the element, 2^-9 in float16) and so larger than typical errors;
// six times the largest change of the output is allowed (Monte Carlo arithmetic: Parker, Pierce and Eggert, 2000).
//
// Bounds can be too small as well, since they know magnitudes alone: the difference between numbers that are close to
// each other (a normalization behind a large bias) has the errors of these numbers. A result that exceeds a bound is
// held to a measured one before it is called wrong (WidenTolerances).
struct ExpectedOutputs {
  std::vector<Array> values;
  std::vector<Tolerance> tolerances;
};

inline constexpr double kLargestBound = 0.05;

// Compares outputs with their references, pairwise. REQUIRES: same types and shapes.
CheckResult CompareOutputs(const std::vector<PackagePort>& ports, const std::vector<Array>& got,
                           const ExpectedOutputs& want);

// The outputs of a package's network by reference kernels (codegen/reference.h), which share nothing with scheduled
// code. They are compiled for `device`, a cuda device or a cpu, and run there one task after the other. Takes seconds.
// Unavailable when there is no compiler.
absl::StatusOr<ExpectedOutputs> EvaluateReference(const Package& package, Device& device,
                                                  const std::map<std::string, Array>& inputs);

// The reference implementation of a package's network, compiled once for any number of inputs. One thread at a time.
class ReferenceNetwork {
 public:
  // `device`: a cuda device or a cpu, which outlives it. `reference_programs`: the reference program of each task for
  // that device (CompileReference); none: they are compiled here, which takes seconds. Unavailable when there is no
  // compiler.
  static absl::StatusOr<std::unique_ptr<ReferenceNetwork>> Create(const Package& package, Device& device,
                                                                  std::vector<Program> reference_programs = {});
  ~ReferenceNetwork();
  // InvalidArgument names an input that is missing or of another type.
  absl::StatusOr<ExpectedOutputs> Run(const std::map<std::string, Array>& inputs);
  // Tolerances of outputs in which no elements may jump become the larger of a measured one and of a bound with the
  // errors that numbers have before they cancel, where that is more: 100 times the old one, and kLargestBound, at most.
  // `expected`: what Run gave for the same inputs.
  absl::Status WidenTolerances(const std::map<std::string, Array>& inputs, ExpectedOutputs* expected);

 private:
  class Impl;
  explicit ReferenceNetwork(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Runs the loaded package on the inputs and compares. The reference is evaluated on the runner's device for cuda, on
// the cpu otherwise.
absl::StatusOr<CheckResult> CheckPackage(PackageRunner& runner, const std::map<std::string, Array>& inputs);

}  // namespace diapason
