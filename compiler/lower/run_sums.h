// Sums over runs of what a kernel stores, made by the threads that store them: no other kernel reads it for that.
#pragma once

#include <optional>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/run_sums.h"

namespace diapason {

// The same kernel, which stores the sums of the runs of what it stores (`of`, tensor/run_sums.h), and of their squares,
// to the new parameter `sums`, too; nothing if it does not store whole runs by the threads of parts of a warp, or more
// than 128 elements by a thread. `next_buffer`: an id that no buffer has; the next one is left there.
std::optional<KernelFunc> WithRunSums(const KernelFunc& kernel, const RunSums& of, const BufferDecl& sums,
                                      int* next_buffer);

}  // namespace diapason
