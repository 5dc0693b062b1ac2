// Places the intermediate tensors of a network in one piece of memory, so that tensors that do not live at the same
// time share addresses.
#pragma once

#include <cstdint>
#include <vector>

namespace diapason {

struct PlannedTensor {
  int64_t bytes = 0;
  int first = 0, last = 0;  // steps at which it must hold its contents, both included
  // The same by depth, the longest chain of steps to one, so that steps of a depth can run side by side. Not given: in
  // order.
  int shallowest = 0, deepest = -1;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // by position; multiples of kArenaAlignment
  int64_t bytes = 0;             // of the arena
};

// What Device::View asks of an offset.
inline constexpr int64_t kArenaAlignment = 512;

// Greedy by size, the largest first, each at the lowest address free for as long as it lives: within a few percent of
// the lower bound on image classifiers (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
// 2020). Tensors share memory only if they are apart by steps and by depth. Deterministic. REQUIRES: bytes >= 0, first
// <= last.
MemoryPlan PlanMemory(const std::vector<PlannedTensor>& tensors);

}  // namespace diapason
