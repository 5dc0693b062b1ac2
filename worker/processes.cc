#include "worker/processes.h"

#include "worker/toolchain.h"

namespace diapason {

int BuilderMain(int fd) { return BuilderMain(fd, *MakeCompilerToolchain()); }

int RunnerMain(int fd, const Target& target) { return RunnerMain(fd, target, &OpenDevice); }

}  // namespace diapason
