// Products as calls of cuBLAS (compiler/schedule/library.h).
#pragma once

#include "absl/status/statusor.h"
#include "compiler/schedule/library.h"
#include "compiler/schedule/library_parts.h"

namespace diapason {

// InvalidArgument, saying why, where the anchor's tensors are no matrices: elements of each at equal distances along
// rows, columns, the reduction and a batch, one of the two inner distances being 1.
absl::StatusOr<LibraryMatch> MatchGemm(const LibraryParts& parts);

}  // namespace diapason
