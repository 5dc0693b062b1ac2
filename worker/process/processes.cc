#include "worker/process/processes.h"

#include "compiler/codegen/compile.h"
#include "worker/process/toolchain.h"

namespace diapason {

int BuilderMain(int fd) { return BuilderMain(fd, *MakeCompilerToolchain()); }

int RunnerMain(int fd, const Target& target) { return RunnerMain(fd, target, &OpenDevice, &CompileSource); }

}  // namespace diapason
