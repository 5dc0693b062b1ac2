// What a schedule may ask for, whoever wrote it: the numbers of its steps, before bounds are inferred from them, and
// the loops that they make, before any is written out. Far above what a search proposes; what is past them would be
// source text without end, or numbers past 64 bits.
#pragma once

#include "absl/status/status.h"
#include "compiler/lower/stmt.h"
#include "compiler/schedule/bounds.h"
#include "compiler/schedule/state.h"
#include "compiler/schedule/step.h"

namespace diapason {

// InvalidArgument names the step by its position, and the number.
absl::Status CheckNumbers(const std::vector<Step>& steps);
// What each stage reads is there where it reads it: stages that are computed at a loop are read inside that loop alone,
// and nobody reads one that is inlined. Steps look at a state as it is then; later ones may undo what held.
// InvalidArgument names the stages. REQUIRES: CheckNumbers; constant factors only.
absl::Status CheckStructure(const State& state);
// FailedPrecondition names the stage, the number and the limit.
absl::Status CheckLoops(const State& state, const Bounds& bounds);

// Every buffer that a kernel reads or writes is one of its parameters, or lives around the place. InvalidArgument names
// the kernel.
absl::Status CheckBuffers(const KernelFunc& kernel);

}  // namespace diapason
