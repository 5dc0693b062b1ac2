#include "worker/process/toolchain.h"

#include <chrono>
#include <string>
#include <utility>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/reference.h"
#include "compiler/lower/lower.h"

namespace diapason {
namespace {

// By the contract of Lower.
MeasureError LoweringError(const absl::Status& status) {
  std::string text(status.message());
  if (absl::IsInvalidArgument(status)) return {ErrorKind::kInstantiation, MeasureStage::kInstantiate, text};
  if (absl::IsResourceExhausted(status)) return {ErrorKind::kOutOfMemory, MeasureStage::kLower, text};
  return {ErrorKind::kLowering, MeasureStage::kLower, text};
}

// By the contract of CompileProgram.
MeasureError CompileError(const absl::Status& status) {
  std::string text(status.message());
  switch (status.code()) {
    case absl::StatusCode::kUnavailable: return {ErrorKind::kInfrastructure, MeasureStage::kCompile, text};
    case absl::StatusCode::kDeadlineExceeded: return {ErrorKind::kBuildTimeout, MeasureStage::kCompile, text};
    case absl::StatusCode::kResourceExhausted: return {ErrorKind::kOutOfMemory, MeasureStage::kCompile, text};
    default: return {ErrorKind::kCompile, MeasureStage::kCompile, text};
  }
}

class CompilerToolchain : public Toolchain {
 public:
  std::variant<Program, MeasureError> Build(const Candidate& c, const StageBegins& stage_begins) override {
    auto began = std::chrono::steady_clock::now();
    stage_begins(MeasureStage::kLower);
    absl::StatusOr<LoweredProgram> lowered = Lower(c.task, c.schedule, c.target, c.facts, c.place);
    if (!lowered.ok()) return LoweringError(lowered.status());
    stage_begins(MeasureStage::kCompile);
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
    absl::StatusOr<Program> program =
        CompileProgram(*lowered, c.target, std::max(0.0, c.timeout_seconds - spent.count()));
    if (!program.ok()) return CompileError(program.status());
    return *std::move(program);
  }

  absl::StatusOr<Program> BuildReference(const ComputeDag& task, const Target& target) override {
    return CompileReference(task, target);
  }
};

}  // namespace

std::unique_ptr<Toolchain> MakeCompilerToolchain() { return std::make_unique<CompilerToolchain>(); }

}  // namespace diapason
