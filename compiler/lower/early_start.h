// Kernels that start before the one in front of them has ended: programmatic dependent launch (CUDA C++ Programming
// Guide, "Programmatic Dependent Launch and Synchronization").
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// When a kernel starts, and where it lets the next one start, whose blocks then take what multiprocessors have left:
// the values of the parameter "overlap" (StepKind::kOverlap).
enum class EarlyStart : uint8_t {
  kNever = 0,       // behind the kernel in front; the next one may start when the sums are complete
  kAtOnce = 1,      // early; the next one may start as soon as all blocks run
  kBehindSums = 2,  // early; the next one may start when the sums are complete: what is left is to write them
};

// The kernel's body for that:
// - kLaunchDependents stands where every thread passes once. Without sums, that is where the kernel begins to write or,
//   if it does nothing else, at its head.
// - Where the kernel starts early, what another one may still write is read behind a wait for it, which codegen prints
//   before the loop that reads it. Asynchronous copies of constants in a loop with copies of such inputs (the first
//   copies of a pipeline) come into a loop of their own in front, so that they do not wait.
// Computes what it computed before. REQUIRES: BufferDecl::constant of the parameters is set.
Stmt WithEarlyStart(const KernelFunc& kernel, EarlyStart start);

// Whether another kernel may write or read the parameter while this one, started early, has not waited.
bool IsAwaited(const BufferDecl& decl);

}  // namespace diapason
