// Kernels that start before the one in front of them has ended: programmatic dependent launch (CUDA C++ Programming
// Guide, "Programmatic Dependent Launch and Synchronization").
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// Where a kernel lets the next one start, whose blocks then take what multiprocessors have left: the values of the
// parameter "overlap" (StepKind::kOverlap).
enum class NextStart : uint8_t {
  kNever = 0,  // when it has ended
  kAtOnce = 1,
  kBehindSums = 2,  // when its sums are complete: what is left is to write them
};

// The body of a kernel that starts early:
// - what another kernel may still write is read behind a wait for it, which codegen prints before the loop that reads
//   it. Asynchronous copies of constants in a loop with copies of such inputs (the first copies of a pipeline) come
//   into a loop of their own in front, so that they do not wait.
// - kLaunchDependents stands where every thread passes once.
// Computes what it computed before. REQUIRES: BufferDecl::constant of the parameters is set; `next` is not kNever.
Stmt StartEarly(const KernelFunc& kernel, NextStart next);

// Whether another kernel may write or read the parameter while this one, started early, has not waited.
bool IsAwaited(const BufferDecl& decl);

}  // namespace diapason
