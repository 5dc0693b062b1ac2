// Launches of a plan on a GPU that bring memory to the L2 cache (prefetches.h).
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library.h"
#include "compiler/runtime/cuda/memory.h"
#include "compiler/runtime/cuda/plan.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/prefetches.h"

namespace diapason {

// Of one device. Its context must be the thread's at each call, and outlive this.
class CudaPrefetcher {
 public:
  CudaPrefetcher(const CudaLibrary& cuda, CUcontext context) : cuda_(cuda), context_(context) {}

  // Launches of a kernel that asks for what `prefetches` say of `launches`: `cp.async.bulk.prefetch.L2` (PTX ISA,
  // sm_90 and later), which nothing waits for. Arguments are the pieces, each an address and its bytes: argument 2 * i
  // of a launch is the address of piece i. The driver compiles the kernel the first time.
  absl::StatusOr<std::vector<PrefetchLaunch>> Prepare(const std::vector<Launch>& launches,
                                                      const std::vector<Prefetch>& prefetches);

 private:
  absl::Status Load();

  const CudaLibrary& cuda_;
  const CUcontext context_;
  std::unique_ptr<CudaModule> module_;
  CUfunction function_ = nullptr;
};

}  // namespace diapason
