// The compilers behind generated source: the system's C compiler in a child process, NVRTC in this one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/program.h"

namespace diapason {

// Fills binary, compiler, registers, spill_bytes and serialized of a program whose target, kernels and source are set.
// Errors as CompileProgram; the program is then unchanged. Safe from several threads.
absl::Status CompileSource(Program& program, double timeout_seconds);

// Makes a shared object of C source: `units` are translation units, which share no names but those of their kernels.
// What was compiled in this process before, by the same compiler with the same flags, is not compiled again. The
// compiler runs in a process group of its own, inside a directory of its own under $TMPDIR (or /tmp); both are gone
// when this returns, whatever happened.
absl::Status CompileC(Program& program, const std::vector<std::string>& units, double timeout_seconds);

// Whether the compiler of a cpu target is here and knows its -mcpu. InvalidArgument names a processor that it does not
// know, with what it may have been; Unavailable, how to install a compiler that is missing. The features that its code
// may use are the result (compiler/tensor/processor.h).
absl::StatusOr<std::string> FeaturesOf(const Target& target);

// FailedPrecondition if this machine's processor lacks features of a cpu target, or is of another architecture; other
// errors as FeaturesOf. Asks no compiler for "native".
absl::Status CheckRunsHere(const Target& target);

// With which CompileC compiles for a target: those that decide what kernels compute, and how fast.
std::vector<std::string> CKernelFlags(const Target& target);

// Makes a cubin of CUDA source with NVRTC, for program.target.arch or sm_90. A program with a kernel for whose
// registers the compiler guesses badly is compiled a second time, and a third where that helps only some of its
// kernels: `source` then says how many blocks are to be resident.
absl::Status CompileCuda(Program& program);

// The first lines of a compiler's report that speak of errors, at most `count`; its first lines when none does.
std::string FirstErrors(const std::string& report, int count = 5);

}  // namespace diapason
