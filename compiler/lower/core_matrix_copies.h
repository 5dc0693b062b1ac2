// Copies in core matrices (StepKind::kCoreMatrices), as products by warpgroups take them.
#pragma once

#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"

namespace diapason {

class CoreMatrixCopies {
 public:
  CoreMatrixCopies(NestParts* parts, NestEmitter* emitter) : parts_(*parts), nest_(parts->state), emitter_(*emitter) {}

  // What products by warpgroups need of the copies that were made at a loop in an iteration of a pipeline with so many
  // slots (1: without one): low parts, of those that have them, elements rounded, of those that are not yet, and all
  // of them published, so that products behind the next barrier see them. Null if there are none.
  Stmt Finish(int id, size_t position, const Expr& iteration, int64_t slots);

 private:
  struct PartsTo {
    FactorPart part;
    int buffer;
    int64_t slots;
  };
  // Of what this thread has copied at an iteration, into another buffer or its own.
  Stmt PartsOf(int copy, const Expr& iteration, int64_t slots, const PartsTo& to);

  NestParts& parts_;
  NestState& nest_;
  NestEmitter& emitter_;
};

}  // namespace diapason
