// Which launches of a plan may run side by side, and on which paths (streams): from the memory that each reads and
// writes, in the order in which they are given. No device is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/runtime/device.h"

namespace diapason {

// Of a plan, for kernels side by side: small networks have no more branches.
inline constexpr int kMostPaths = 4;

struct MemoryRange {
  uint64_t begin = 0, end = 0;  // addresses, [begin, end)
  bool written = false;
  WrittenPart part{};  // of what is written there
};

// Where a launch runs.
struct PathStep {
  int path = 0;            // it runs after the launch before it on that path
  std::vector<int> waits;  // launches of other paths that must have ended before
  bool alone = false;      // it depends on the launch before it on its path and on no other
};

struct LaunchPaths {
  int count = 0;                // of paths
  std::vector<PathStep> steps;  // by launch
  std::vector<int> last;        // by path: its last launch
};

// For each launch the earlier ones that it has to wait for: those that write what it uses, or use what it writes. Left
// out are those for which another of them waits.
std::vector<std::vector<int>> DependenciesOf(const std::vector<std::vector<MemoryRange>>& launches);

// All of them on one path.
LaunchPaths InOrder(size_t launches);

// A launch is put on the path of one that it waits for, where nothing came behind that one; else on a path whose last
// launch has ended anyway, or a new one, at most `most` in all. Launch 0 is on path 0. REQUIRES: most > 0.
LaunchPaths PlacePaths(const std::vector<std::vector<int>>& dependencies, int most);

}  // namespace diapason
