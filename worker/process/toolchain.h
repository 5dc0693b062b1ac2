// The compiler as a builder process uses it: an interface, so that tests can put one in that crashes, hangs or eats
// memory at will.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "compiler/runtime/outcome.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/target.h"

namespace diapason {

class Toolchain {
 public:
  virtual ~Toolchain() = default;

  // Called when a stage begins, so that the supervisor knows how far a build came that crashes or hangs.
  using StageBegins = std::function<void(MeasureStage)>;

  struct Candidate {
    const ComputeDag& task;
    const Schedule& schedule;
    const Target& target;
    const DeviceFacts& facts;
    OutputPlace place;       // of the output, if the program is a part of a network and that a part of a larger tensor
    double timeout_seconds;  // a wish: the supervisor's deadline is the same
  };
  // The candidate as a program for the target.
  virtual std::variant<Program, MeasureError> Build(const Candidate& candidate, const StageBegins& stage_begins) = 0;
  // The reference that candidates are compared with.
  virtual absl::StatusOr<Program> BuildReference(const ComputeDag& task, const Target& target) = 0;
};

// compiler/lower and compiler/codegen.
std::unique_ptr<Toolchain> MakeCompilerToolchain();

}  // namespace diapason
