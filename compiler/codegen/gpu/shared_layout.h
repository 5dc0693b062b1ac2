// Where the shared buffers of a kernel lie.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/lower/stmt.h"

namespace diapason {

// Bytes that a buffer is aligned to on GPUs: global and shared ones at least for vector accesses.
int64_t GpuAlignmentOf(const BufferDecl& decl);

struct SharedLayout {
  std::vector<std::pair<BufferDecl, int64_t>> offsets;  // in the order of declaration
  int64_t bytes = 0;
  int64_t alignment = 128;
  bool overlaid = false;  // buffers share their places: they are parts of one array
};

// The layout of all shared buffers that the body allocates. A null body has none.
SharedLayout LayOutShared(const Stmt& body);

}  // namespace diapason
