// Targets as commands use them: with the facts of the device behind them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/tensor/library_call.h"
#include "compiler/tensor/target.h"

namespace diapason {

struct ResolvedTarget {
  // As given, with what it left open filled in (cuda: -arch, cpu: -num-cores), so that "cuda" and "cuda -arch=sm_90"
  // find each other's records on the same machine. -device is left out: it tells where, not what; so is -norms, which
  // tells what tasks a network has, not what they are.
  Target target;
  int device = 0;                // what -device said
  Norms norms = Norms::kEither;  // what -norms said
  DeviceFacts facts;
};

// Facts are those of the device here, or defaults of the architecture where there is none: enough to search and to
// compile.
absl::StatusOr<ResolvedTarget> ResolveTarget(const std::string& text);
// With the facts of a device elsewhere; of a processor, for as many cores as the target names.
ResolvedTarget ResolveWith(Target target, DeviceFacts facts);
// As ResolveTarget, but Unavailable, with what is missing and how to fix it, when there is no such device here.
absl::StatusOr<ResolvedTarget> ResolveMeasurableTarget(const std::string& text);

// How networks are fused by default: recurrences in one kernel where a cluster of blocks keeps their weights on chip,
// attentions of one query in two on GPUs, with bounds of factors where float32 products may be made of float16 ones,
// with normalizations behind products where the target says so, or says nothing and up to 512 rows are normalized on
// sm_90.
FusionPreferences PreferredFusion(const Target& target);
FusionPreferences PreferredFusion(const ResolvedTarget& target);

// Whether this machine's processor has what code for a cpu target needs; OK for other kinds. FailedPrecondition names
// the features or the architecture that is missing; other errors are those of the compiler: it is not installed, or
// does not know the processor.
absl::Status CheckTargetRunsHere(const Target& target);

// A device for people: of processors with the instruction set that the vectors of their code are of, "AMD EPYC,
// AVX-512". Records are kept under facts.model alone.
std::string DeviceTitle(TargetKind kind, const DeviceFacts& facts);

// The target without the libraries that `check` says are missing, and a sentence for each of them.
Target WithoutMissingLibraries(const Target& target, const std::function<absl::Status(Library)>& check,
                               std::vector<std::string>* warnings);

}  // namespace diapason
