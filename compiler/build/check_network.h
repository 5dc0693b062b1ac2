// Is what a package computes right every time? Several inputs in turns, so that what is left of one run shows in the
// next; the first run of each against the reference implementation, where that does not take too long, and all later
// ones against the first, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/check_package.h"
#include "compiler/build/package.h"
#include "compiler/tensor/array.h"

namespace diapason {

struct NetworkCheckOptions {
  uint64_t seed = 1;  // of the first inputs; the next ones count up
  int seeds = 3;      // different inputs; at least 2
  // Of the reference implementation: then no further inputs are begun. The first ones are compared with it in any case;
  // there are two at least, of which the second one then is compared with its own first run alone.
  double most_seconds = 5;
};

// How often, and for how long at most.
struct ReplayOptions {
  int replays = 20;  // runs of each of the inputs
  // Then no more are begun, but one of each is made in any case, and another of the first inputs behind those.
  double most_seconds = 5;
};

// Inputs, and what the network makes of them.
struct NetworkReferences {
  std::vector<uint64_t> seeds;
  std::vector<std::map<std::string, Array>> inputs;  // by seed
  std::vector<ExpectedOutputs> outputs;              // of the first seeds; of others the first run is taken for right
  // ReferenceNetwork::WidenTolerances of an input's outputs, to which a result that exceeds those above is held. Null:
  // there is none.
  std::function<absl::Status(size_t input, ExpectedOutputs* outputs)> widen;
};

// Inputs alone.
NetworkReferences InputsWithoutReferences(const PackageManifest& manifest, const NetworkCheckOptions& options);
// By ReferenceNetwork; `device` and `reference_programs` are its own. The device outlives what is returned.
absl::StatusOr<NetworkReferences> MakeReferences(const Package& package, Device& device,
                                                 const NetworkCheckOptions& options,
                                                 std::vector<Program> reference_programs = {});
// Whether every element of every output is a finite number: otherwise a check would say little.
bool AllFinite(const std::vector<Array>& outputs);

struct NetworkVerdict {
  bool ok = false;
  int64_t runs = 0;
  double max_abs_error = 0, max_rel_error = 0, tolerance = 0;  // as CheckResult, of the first runs
  // Why not, for people: which output, where, by how much, the tolerance, the seed of the inputs and the run.
  std::string text;
};

// Runs the loaded package on each of the inputs in turns, and stops at the first wrong output. Its memory is poisoned
// before the first run. A runner that keeps two plans runs both in turns. Libraries are held to the tolerance in later
// runs as well, since theirs may add in another order. Errors are the device's.
absl::StatusOr<NetworkVerdict> CheckRepeatedly(PackageRunner& runner, const NetworkReferences& references,
                                               const ReplayOptions& options = {});

}  // namespace diapason
