// Where the time of a loaded package goes: each kernel's, in its place in the network.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/tensor/kernel_work.h"

namespace diapason {

struct ProfileOptions {
  double warm_up_seconds = 0.2;
  double seconds = 2;   // of timed runs, whose medians are the result
  int least_runs = 10;  // timed runs, however long they take
  // Peaks for the roofline; nothing: those of the device's facts, and none on opencl, which does not tell them.
  std::optional<double> flops, bandwidth;  // per second, and bytes per second
};

struct Roofline {
  double seconds = 0;    // the least that the kernel could take
  bool compute = false;  // bound by arithmetic; else by memory
};

struct ProfiledKernel {
  int step = 0, task = 0;  // in the manifest
  std::string name;
  double seconds = 0;                // median
  std::optional<KernelWork> work;    // nothing: the package does not say
  std::optional<Roofline> roofline;  // nothing: work or peaks are not known
};

struct PackageProfile {
  std::vector<ProfiledKernel> kernels;     // in order
  int runs = 0;                            // that were timed kernel by kernel
  int paths = 1;                           // on which kernels run side by side in a real run
  bool early_starts = false;               // kernels start before those in front have ended, in a real run
  double latency_seconds = 0;              // median of real runs, back to back
  double run_seconds = 0;                  // median of the kernels' sums in a timed run
  std::optional<double> flops, bandwidth;  // the peaks that were used

  // These three add up to the latency. The sum of the kernels' medians;
  double kernels_seconds() const;
  // what their sum in a run has more: in most runs some kernels are disturbed, other ones each time;
  double disturbed_seconds() const { return run_seconds - kernels_seconds(); }
  // what the latency has more than that, between kernels; below 0 where kernels overlap in a real run.
  double between_seconds() const { return latency_seconds - run_seconds; }
};

// Runs the network with the inputs that are set, kernels in order, timing each in its place (LaunchTimer), and as it is
// otherwise run, for the latency. Errors of running.
absl::StatusOr<PackageProfile> ProfilePackage(PackageRunner& runner, const ProfileOptions& options);

}  // namespace diapason
