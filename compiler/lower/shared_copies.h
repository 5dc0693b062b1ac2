// What copies into shared memory are made and completed with.
#pragma once

#include "compiler/lower/bulk_copies.h"
#include "compiler/lower/core_matrix_copies.h"
#include "compiler/lower/tensor_copies.h"

namespace diapason {

struct SharedCopies {
  SharedCopies(NestParts* parts, NestEmitter* emitter)
      : bulk(&parts->state), tensor(&parts->state), core_matrices(parts, emitter) {}
  BulkCopies bulk;
  TensorCopies tensor;
  CoreMatrixCopies core_matrices;
};

}  // namespace diapason
