// What one stage of a kernel does, as the estimates count it.
#pragma once

namespace diapason {

struct WorkOfStage {
  double executions = 0;       // of the statement
  double warp_executions = 0;  // gpu: by the warps of one block, less what is folded away
  double operations = 0;       // arithmetic operations of one execution
  double body = 1;             // executions of one pass over the unrolled body
  double operand_loads = 0;    // distinct elements that one pass over the body reads
  double vector_loads = 0;     // cpu: of them, loads of vectors (the others are broadcasts)
  double lanes = 1;            // vector lanes
  double vector_ok = 1;        // 0: an access strides across lanes
  double conflict = 1;         // shared memory bank conflicts, worst access
  double shared_loads = 0;     // instructions of one pass over the body that read shared memory
  double wavefronts = 0;       // of shared memory, that they take
  double other_loads = 0;      // elements of operands elsewhere that one pass over the body reads
  double bytes = 0;            // from global memory, over the kernel
  double unique_bytes = 0;     // distinct bytes of those
  double contiguous = 1;       // elements in a row of a copy
  double barriers = 0;
};

}  // namespace diapason
