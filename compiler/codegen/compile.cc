#include "compiler/codegen/compile.h"

namespace diapason {

absl::Status CompileSource(Program& program, double timeout_seconds) {
  switch (program.target.kind) {
    case TargetKind::kCpu: return CompileC(program, {program.source}, timeout_seconds);
    case TargetKind::kCuda: return CompileCuda(program);
    case TargetKind::kOpenCl:
      program.binary = program.source;  // the device's driver compiles it when it is loaded
      program.compiler = "opencl";
      return absl::OkStatus();
  }
  return absl::InternalError("unknown target kind");
}

}  // namespace diapason
