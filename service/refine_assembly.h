// The records and fusion alternatives of a network, chosen by what the whole network takes. The time of a kernel alone
// does not say how it runs beside its neighbours: how soon it starts behind the kernel before it, what the caches hold
// for it, how the device is shared. So other alternatives take the place of those that a network has, at all choice
// points that are alike at once, and then the contenders of each task that of its best record, one after the other, and
// keep it where the network becomes faster. The search is a coordinate descent: alternatives are tried once, then
// records, those with the largest share first, until no single one makes the network faster or time is up.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/network.h"
#include "service/contenders.h"
#include "service/network_assembly.h"

namespace diapason {

// Networks that are alike but for records, on a device: one that is kept, and another that is compared with it.
class NetworkVersions {
 public:
  struct Times {
    double kept = 0, other = 0;  // seconds of a run
  };

  virtual ~NetworkVersions() = default;
  // Compiles what assemblies will need that are prepared later: `assembly` with each of the replacements.
  virtual absl::Status Announce(const Assembly& assembly, const std::vector<TaskRecord>& replacements) = 0;
  // Loads the network as the other one; the first is kept at once. FailedPrecondition where it cannot be made here,
  // ResourceExhausted where the device has no memory for it; the one that is kept stays. Other errors are the device's.
  virtual absl::Status Prepare(const Assembly& assembly) = 0;
  // Times both, one behind the other. REQUIRES: both are there.
  virtual absl::StatusOr<Times> Time() = 0;
  // The other one is kept from now on.
  virtual void Keep() = 0;
};

struct RefineOptions {
  double seconds = 10;                      // then no more are tried
  const std::atomic<bool>* stop = nullptr;  // the same once it is true
};

struct Refinement {
  int compared = 0;                   // networks that were tried
  std::vector<std::string> replaced;  // workloads that take another record now
  int regrouped = 0;                  // choice points that take another alternative now
  double ratio = 1;                   // what the network takes now over what it took, measured at the end
  double seconds = 0;                 // a run of the network as it is now; 0: as it was, nothing is replaced
  bool ended_early = false;           // time was up, or it was stopped, before everything was tried
};

// What may take the place of what an assembly of a network has.
struct Replacements {
  const Network& network;
  const FusionChoices& fusion;
  // The fastest of each workload, those of fusion alternatives included: an alternative is tried if all its tasks have
  // one and it takes at most kFusionMargin times as long by their times.
  const RecordsByWorkload& records;
  // Those of tasks that only another fusion alternative has are tried if that alternative is kept.
  const ContendersByWorkload& contenders;
};
inline constexpr double kFusionMargin = 1.5;

// Whether there is anything to be tried.
bool HasReplacements(const Assembly& assembly, const Replacements& replacements);

// Replaces fusion alternatives and records of `assembly`. It stays as it is unless the network with all replacements is
// faster at the end. Errors are those of the versions.
absl::StatusOr<Refinement> RefineAssembly(Assembly& assembly, const Replacements& replacements,
                                          NetworkVersions& versions, const RefineOptions& options);

}  // namespace diapason
