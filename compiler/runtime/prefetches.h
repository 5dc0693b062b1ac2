// What a plan brings to the L2 cache of a GPU before the launches that read it: the weights of a network that do not
// fit there together come from device memory in each run, and a small kernel waits for them longer than it computes. No
// device is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/runtime/argument_table.h"
#include "compiler/runtime/launch_paths.h"

namespace diapason {

// Memory that is asked for together, at most kMostPieces arguments of launches.
struct Prefetch {
  static constexpr size_t kMostPieces = 8;
  int after = -1;  // the launch that has ended by then; -1: at the start of the plan
  std::vector<ArgumentPlace> pieces;
};

// Of `launches`, by what each argument reads and writes, in the order in which they run. Memory is fetched once, for
// the first launch that reads it, in the order of these launches, and if none of the launches writes any part of it. At
// most a third of the cache is on its way or waiting to be read at a time; an argument of more than half of that (an
// embedding, of which some rows are read) is left to its launch, and so is one of a few KiB. None where all of it
// together takes less than half of the cache, and stays there from run to run.
std::vector<Prefetch> PlanPrefetches(const std::vector<std::vector<MemoryRange>>& launches, int64_t cache_bytes);

}  // namespace diapason
