// What statements of a nest are made with, by all classes that emit whole parts of it.
#pragma once

#include "compiler/lower/expression_lowering.h"
#include "compiler/lower/lane_registers.h"
#include "compiler/lower/loop_values.h"
#include "compiler/lower/nest_state.h"
#include "compiler/lower/stage_loops.h"

namespace diapason {

// Of one kernel, which outlives it.
struct NestParts {
  NestParts(const KernelContext& kernel, int* next_buffer) : state(kernel, next_buffer) {}
  NestParts(const NestParts&) = delete;
  NestParts& operator=(const NestParts&) = delete;

  NestState state;
  LoopValues values{&state};
  StageLoops loops{&state};
  LaneRegisters lanes{&state};
  ExpressionLowering expressions{&state, &lanes};
};

}  // namespace diapason
