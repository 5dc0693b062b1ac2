// Sums over runs of what a kernel stores, made by the threads that store them: no other kernel reads it for that.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel, which stores the sums of runs (tensor/run_sums.h) of the parameter `source`, and of their squares,
// to the parameter `sums`, too; nothing if it does not store whole runs by the threads of parts of a warp, or more than
// 128 elements by a thread. `next_buffer`: an id that no buffer has; the next one is left there.
struct StoredRunSums {
  int source = -1;
  BufferDecl sums;
  int64_t run = 1, runs = 1;  // elements of a run, runs of a row
};
std::optional<KernelFunc> WithRunSums(const KernelFunc& kernel, const StoredRunSums& sums, int* next_buffer);

}  // namespace diapason
