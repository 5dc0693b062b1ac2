// How long a network takes from end to end, estimated from the times of its tasks: their sum where kernels run in
// order; less where branches run side by side (compiler/runtime/launch_paths.h), as far as the device has room for
// both. No device is needed.
#pragma once

#include <vector>

#include "compiler/build/package_format.h"
#include "compiler/runtime/launch_paths.h"
#include "compiler/tensor/program.h"

namespace diapason {

struct ModelledLaunch {
  double seconds = 0;  // alone
  double share = 1;    // of the device that it keeps busy, in (0, 1]: what is left is room for others
};

// One after the other.
double SecondsInOrder(const std::vector<ModelledLaunch>& launches);

// On paths. A launch begins when those that it waits for have ended. While those that run together ask for no more than
// the whole device, each takes as long as alone; else all are slowed down alike, by what they ask for. So a chain takes
// the sum of its times, branches of small kernels the longest branch, and branches of kernels that fill the device the
// sum again. REQUIRES: paths.steps has an entry for each launch, which waits for earlier ones only.
double SecondsOnPaths(const std::vector<ModelledLaunch>& launches, const LaunchPaths& paths);

// The share of the device that a program keeps busy: the mean over its kernels of blocks / multiprocessors, each at
// most 1. In (0, 1].
double ShareOf(const Program& program, int num_cores);

// What the steps of a package use of the arena, by address. `programs` are those of its tasks.
std::vector<std::vector<MemoryRange>> MemoryOfSteps(const PackageManifest& manifest,
                                                    const std::vector<const Program*>& programs);

// The latency of a package whose tasks take what the manifest says: the sum, or on cuda, where loading takes the faster
// of both plans, that on paths if it is less. 0 when the time of a task is not known.
double ModelledSeconds(const PackageManifest& manifest, const std::vector<const Program*>& programs);

}  // namespace diapason
