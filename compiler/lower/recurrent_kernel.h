// All steps of a recurrence as the loop nest of one kernel.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/lower/stmt.h"
#include "compiler/schedule/recurrent_tiles.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/target.h"

namespace diapason {

// What the kernel is made for.
struct RecurrentKernelContext {
  const RecurrentSchedule& schedule;
  RecurrentTiles tiles;
  const Target& target;
  const DeviceFacts& facts;
  const OutputPlace& place;
};

// Of one block, or of the blocks of one cluster, each of which has some units for all steps:
//
//   weights of these units                        in registers or shared memory
//   for each step
//     sums of the units                         of what all blocks have sent to each other; each lane some of the
//                                               terms, or on tensor cores
//     the other stages, of the units            in registers
//     what sums read next, to all blocks        in shared memory, two slots that take turns
//     barrier of the cluster                    results are stored, and inputs asked for, before the wait
//
// On cpu one thread has all units, in vectors. `next_buffer` gives ids to buffers that are no stage's.
// FailedPrecondition if the target or the device cannot have it.
absl::StatusOr<KernelFunc> BuildRecurrentKernel(const RecurrentKernelContext& context, int* next_buffer);

}  // namespace diapason
