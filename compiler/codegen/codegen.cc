#include "compiler/codegen/codegen.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/codegen/c_printer.h"
#include "compiler/codegen/cluster_passes.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/gpu_printer.h"

namespace diapason {
namespace {

Dialect DialectOf(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu: return Dialect::kC;
    case TargetKind::kOpenCl: return Dialect::kOpenCl;
    case TargetKind::kCuda: return Dialect::kCuda;
  }
  return Dialect::kC;
}

// What is printed: OpenCL has no clusters.
LoweredProgram ForDialect(const LoweredProgram& program, Dialect dialect) {
  return dialect == Dialect::kOpenCl ? WithoutClusters(program) : program;
}

Kernel KernelOf(const KernelFunc& func, const std::map<int, int>& index_of, const Target& target) {
  const bool gpu = target.is_gpu();
  Kernel kernel;
  kernel.name = func.name;
  for (const BufferDecl& param : func.params) {
    auto it = index_of.find(param.id);
    DIAPASON_CHECK_MSG(it != index_of.end(), func.name + ": parameter " + param.name + " is no buffer of the program");
    kernel.args.push_back(it->second);
  }
  for (const MappedTensor& tensor : MappedTensorsOf(func.body)) {
    const auto param = std::find_if(func.params.begin(), func.params.end(),
                                    [&](const BufferDecl& decl) { return decl.id == tensor.buffer; });
    kernel.tensor_maps.push_back(
        {static_cast<int>(param - func.params.begin()), static_cast<int>(BytesOf(param->dtype)), *tensor.box});
  }
  kernel.library = func.library;
  kernel.grid[0] = func.blocks;
  kernel.block[0] = gpu ? func.threads : 1;
  kernel.cluster = target.kind == TargetKind::kCuda ? static_cast<int>(func.cluster) : 1;
  kernel.overlap = func.overlap;
  kernel.shared_bytes = gpu && func.library == nullptr ? SharedBytesOf(func) : 0;
  return kernel;
}

struct Source {
  std::string whole;
  std::vector<std::string> units;  // C: the same, each kernel with what it needs
};

Source Print(const LoweredProgram& program, const Target& target) {
  const Dialect dialect = DialectOf(target.kind);
  const int vector_bytes = dialect == Dialect::kC ? DefaultFacts(target).vector_bytes : 0;
  const std::string prelude = dialect == Dialect::kC ? CPrelude() : GpuPrelude(dialect);
  Source source;
  Helpers helpers(dialect);
  std::string kernels;
  for (const std::vector<KernelFunc>* funcs : {&program.prologue, &program.kernels}) {
    for (const KernelFunc& func : *funcs) {
      kernels += "\n";
      if (func.library != nullptr) {
        kernels += "// " + ToString(func);  // made by the runtime
      } else if (dialect == Dialect::kC) {
        Helpers own(dialect);
        const std::string kernel = PrintCKernel(func, vector_bytes, own);
        source.units.push_back(prelude + own.Text() + kernel);
        helpers.Add(own);
        kernels += kernel;
      } else {
        kernels += PrintGpuKernel(func, dialect, helpers);
      }
    }
  }
  source.whole = prelude + helpers.Text() + kernels;
  if (source.units.empty()) source.units.push_back(source.whole);  // calls of libraries alone
  return source;
}

}  // namespace

std::string PrintSource(const LoweredProgram& lowered, const Target& target) {
  return Print(ForDialect(lowered, DialectOf(target.kind)), target).whole;
}

absl::StatusOr<Program> CompileProgram(const LoweredProgram& given, const Target& target, double timeout_seconds) {
  const LoweredProgram lowered = ForDialect(given, DialectOf(target.kind));
  Program program;
  program.target = target;
  std::map<int, int> index_of;  // buffer id -> index in Program::buffers
  for (const auto& [id, buffer] : lowered.buffers) {
    index_of[id] = static_cast<int>(program.buffers.size());
    program.buffers.push_back({.name = buffer.decl.name,
                               .dtype = buffer.decl.dtype,
                               .elements = buffer.decl.elements,
                               .role = static_cast<BufferRole>(buffer.role),
                               .stage = buffer.stage,
                               .valid_min = buffer.valid_min,
                               .valid_max = buffer.valid_max});
  }
  for (const KernelFunc& func : lowered.prologue) program.prologue.push_back(KernelOf(func, index_of, target));
  for (const KernelFunc& func : lowered.kernels) program.kernels.push_back(KernelOf(func, index_of, target));
  Source source = Print(lowered, target);
  program.source = std::move(source.whole);
  RETURN_IF_ERROR(target.kind == TargetKind::kCpu ? CompileC(program, source.units, timeout_seconds)
                                                  : CompileSource(program, timeout_seconds));
  return program;
}

}  // namespace diapason
