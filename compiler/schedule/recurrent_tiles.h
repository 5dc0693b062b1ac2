// How a recurrence is divided among blocks and threads when all of its steps are one kernel (persistent recurrent
// layers: Diamos et al. 2016), and what that needs of a device.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/recurrence.h"
#include "compiler/tensor/target.h"

namespace diapason {

// The numbers are stored in records: never renumber, never change what one means.
enum class WeightsIn : uint8_t {
  kGlobal = 0,     // read in every step
  kShared = 1,     // of each block, from the first step on
  kRegisters = 2,  // of each thread
  // As operands of products on tensor cores, in registers of each warp: four lanes have a unit, and a quarter of the
  // rows each (recurrent_products.h).
  kFragments = 3,
  kSharedFragments = 4,  // the same, from shared memory of each block
  // Half of the terms of each thread in its registers, the others in shared memory: what neither has room for alone.
  kRegistersAndShared = 5,
};

// The factors of StepKind::kRecurrence, in this order.
struct RecurrentTiles {
  int64_t cluster = 1;  // blocks; more than one exchange what sums read through distributed shared memory
  int64_t lanes = 1;    // neighbouring threads that share the sums of their units
  int64_t units = 1;    // of a thread, neighbours; on cpu the lanes of a vector
  WeightsIn weights = WeightsIn::kGlobal;

  bool fragments() const { return weights == WeightsIn::kFragments || weights == WeightsIn::kSharedFragments; }

  static RecurrentTiles Of(absl::Span<const Factor> factors);
};

// A stage that sums read whole, so that all blocks have it.
struct ExchangedStage {
  int stage = -1;        // of the body of step 0
  bool carried = false;  // sums read that of the step before: it has two slots that take turns
  bool own = false;      // sums of the same step read it
  int64_t slots() const { return carried ? 2 : 1; }
};

// Loads that a sum makes of tensors which are the same in all steps and rows: its weights.
std::vector<Expr> WeightLoads(const Recurrence& recurrence, const Stage& stage, const Expr& body);

// A recurrence as the schedule of its dag has it.
struct RecurrentSchedule {
  ComputeDag dag;
  Recurrence recurrence;

  std::vector<ExchangedStage> Exchanged() const;
  // Units of a block and threads of a block.
  int64_t UnitsOfBlock(const RecurrentTiles& tiles) const;
  int64_t Threads(const RecurrentTiles& tiles) const;
  // Units of all threads of a block, of which the last ones may have none to compute.
  int64_t UnitsOfThreads(const RecurrentTiles& tiles) const { return Threads(tiles) / tiles.lanes * tiles.units; }
  // Of a thread, how many of its terms have their weights in registers: the first ones.
  int64_t TermsInRegisters(const RecurrentTiles& tiles, const Stage& stage) const;
  // Of a sum, how many terms have theirs in shared memory: the last ones.
  int64_t TermsInShared(const RecurrentTiles& tiles, const Stage& stage) const;
  // Elements between the weights of two columns in shared memory: no two lanes of a warp read the same bank.
  int64_t WeightStride(const RecurrentTiles& tiles, int64_t terms, int64_t groups) const;

  // In 32 bits: the weights of a sum as a lane has them for products on tensor cores.
  int64_t FragmentWords(const Stage& stage) const;
  // Rows of a stage that a thread has: all, or with products on tensor cores some of them.
  int64_t RowsOfThread(const RecurrentTiles& tiles, const Stage& stage) const;

  int64_t SharedBytes(const RecurrentTiles& tiles, const Target& target) const;
  // About; of 32 bits.
  int64_t Registers(const RecurrentTiles& tiles) const;
  // FailedPrecondition, naming the limit, if the target or the device cannot have it.
  absl::Status Check(const RecurrentTiles& tiles, const Target& target, const DeviceFacts& facts) const;
};

}  // namespace diapason
