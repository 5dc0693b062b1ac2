// Prepares launches on a GPU: finds functions in loaded kernels and library calls, and checks what they need.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/runtime/cuda/plan.h"
#include "compiler/runtime/device.h"

namespace diapason {

// Gives a function the smallest L1 cache. A multiprocessor divides one memory into cache and shared memory, and runs
// kernels side by side only if they have the same division: those that start early all get this one.
absl::Status PreferSharedMemory(const CudaLibrary& cuda, CUfunction function, const std::string& kernel);

// Of one device. Its context must be the thread's at each call, and outlive this.
class CudaLaunchPreparer {
 public:
  // Libraries are called on `stream`. All of these must outlive this.
  CudaLaunchPreparer(const CudaLibrary& cuda, CUcontext context, CUstream stream, const DeviceFacts& facts)
      : cuda_(cuda), context_(context), stream_(stream), facts_(facts) {}

  // InvalidArgument or FailedPrecondition, naming the kernel: what is launched does not exist, or needs more than the
  // device has. Functions are allowed what the launches need.
  absl::StatusOr<std::vector<PreparedLaunch>> PrepareAll(const std::vector<Launch>& launches);
  // Memory for the calls of a plan, which come one after the other; null when none asks for any.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> WorkspaceFor(const std::vector<PreparedLaunch>& launches);

 private:
  absl::StatusOr<PreparedLaunch> Prepare(const Launch& launch);
  // Prepares a call of a library. The first time, makes it once outside of any graph: libraries load their kernels
  // then, which must not happen while a graph is captured. What it computes goes to memory of its own.
  absl::Status PrepareLibrary(const LibraryCall& call, PreparedLaunch* prepared);
  // Lets functions use as much shared memory and as large a cluster as their launches ask for, once per function. Those
  // that may start early prefer shared memory, also where a plan then starts them in order.
  absl::Status Allow(const std::vector<PreparedLaunch>& launches);

  const CudaLibrary& cuda_;
  const CUcontext context_;
  const CUstream stream_;
  const DeviceFacts& facts_;
  std::unique_ptr<LibraryCalls> libraries_;  // made at the first call of one
  std::set<const PreparedCall*> warm_;       // calls that were made once
};

}  // namespace diapason
