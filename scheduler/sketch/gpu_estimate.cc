#include "scheduler/sketch/gpu_estimate.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "compiler/tensor/tensor_intrinsic.h"
#include "scheduler/sketch/feature_names.h"

namespace diapason {

GpuEstimate::GpuEstimate(const State& state, TargetKind kind, const DeviceFacts& facts, const KernelResources& kernel)
    : state_(state),
      kind_(kind),
      facts_(facts),
      kernel_(kernel),
      sum_{.blocks = static_cast<double>(kernel.blocks),
           .threads = static_cast<double>(kernel.threads),
           .warps = std::ceil(static_cast<double>(kernel.threads) / 32.0)} {}

void GpuEstimate::Add(const Stage& added, const StageBounds& b, WorkOfStage w) {
  const int id = added.id;
  const StageState& stage = state_.stage(id);
  w.warp_executions =
      added.share * (w.executions / sum_.blocks / std::max(1.0, std::min(32.0, static_cast<double>(kernel_.threads))));
  sum_.bytes += w.bytes;
  sum_.unique += w.unique_bytes;
  if (stage.bulk) return AddBulkCopy(b, w);
  sum_.operations += w.executions * w.operations;
  const bool copy = stage.memory == Memory::kShared;
  if (copy) sum_.slots = std::max(sum_.slots, static_cast<double>(b.slots));
  if (stage.op.reduces()) {
    AddReduction(id, b, w);
  } else if (added.held) {
    sum_.issue += w.warp_executions / w.body * w.shared_loads;
    sum_.shared_time += w.warp_executions / w.body * w.wavefronts;
  } else if (copy) {
    AddCopy(id, b, w);
  } else {
    sum_.issue += w.warp_executions * (4 + w.operations);
  }
  if (id != kernel_.root) return;
  const double written = static_cast<double>(stage.op.elements() * BytesOf(stage.op.dtype));
  sum_.bytes += written;
  sum_.unique += written;
  if (kernel_.cluster * kernel_.thread_sets > 1) AddSumOfParts(w);
}

void GpuEstimate::AddBulkCopy(const StageBounds& b, const WorkOfStage& w) {
  const double per_block = w.executions / sum_.blocks;
  const double steps = per_block / static_cast<double>(b.elements());
  sum_.issue += 6 * steps * sum_.warps;
  sum_.shared_time += per_block / 128;
  sum_.rounds = std::max(sum_.rounds, steps);
}

void GpuEstimate::AddReduction(int id, const StageBounds& b, const WorkOfStage& w) {
  const StageState& stage = state_.stage(id);
  const bool tensor = stage.tensor != TensorMode::kNone && kind_ == TargetKind::kCuda;
  const TensorIntrinsic* const intrinsic = tensor ? &TensorIntrinsicOf(stage.tensor) : nullptr;
  const double arithmetic = w.warp_executions * std::max(1.0, w.operations / 2);
  if (tensor && intrinsic->groups) {
    // Two thirds of that time, from shared memory; only rows are loaded and cut, for all columns at once, and added to
    // the sums. Rows that are not loaded are read by the products.
    const double columns = 4 * static_cast<double>(b.extent[stage.loops[stage.tensor_n].parent]);
    sum_.depth = static_cast<double>(b.extent[stage.tensor_k]);
    sum_.fma += arithmetic * intrinsic->fma;
    const double rows = 4 * intrinsic->loads;  // of 3xTF32: 1
    const bool loaded = !state_.reads_core_matrices(id);
    const double conflict = loaded && !intrinsic->parts ? w.conflict : 1;
    sum_.issue += arithmetic * (intrinsic->issue + (loaded ? 4.5 * rows / columns : 0));
    sum_.shared_time += arithmetic * (intrinsic->shared + rows * conflict / columns);
    return;
  }
  sum_.by_warps = sum_.by_warps || tensor;
  sum_.fma += arithmetic * (tensor ? intrinsic->fma : 1);
  const double bodies = w.warp_executions / w.body;
  const double loads = bodies * w.operand_loads * (tensor ? intrinsic->loads : 1);
  // Of shared memory each instruction and wavefront is counted; of others neighbours come together, half of them, say.
  const bool counted = w.wavefronts > 0 && !tensor;
  sum_.issue += arithmetic * (tensor ? intrinsic->issue : 1) +
                (counted ? bodies * (w.shared_loads + w.other_loads * 0.6) : loads * 0.6);
  sum_.shared_time += counted ? bodies * w.wavefronts : loads * 0.6 * w.conflict;
  sum_.loads_per_op = std::max(sum_.loads_per_op, w.operand_loads / w.body);
  sum_.body = std::max(sum_.body, w.body);
  sum_.conflict = std::max(sum_.conflict, w.conflict);
  sum_.ilp = std::max(sum_.ilp, std::min(w.body, static_cast<double>(kernel_.local_elements)));
}

void GpuEstimate::AddCopy(int id, const StageBounds& b, const WorkOfStage& w) {
  const StageState& stage = state_.stage(id);
  const auto elements = static_cast<double>(b.elements());
  const bool boxes = kind_ == TargetKind::kCuda && IsMadeByTensorCopies(stage, b);
  sum_.boxes = sum_.boxes || boxes;
  // A wait for them.
  sum_.issue += boxes ? 6 * sum_.warps * w.executions / sum_.blocks / std::max(1.0, elements)
                      : w.warp_executions * (12.0 / w.lanes + 2);
  sum_.shared_time += w.warp_executions / w.lanes;
  if (kind_ == TargetKind::kCuda && (state_.has_low_parts(id) || state_.is_rounded_in_place(id))) {
    // What was copied is read again, cut or rounded, and stored.
    sum_.issue += w.warp_executions * (3 + 3 / w.lanes);
    sum_.shared_time += w.warp_executions * 2 / w.lanes;
  }
  if (!boxes)
    sum_.copy_rounds = std::max(sum_.copy_rounds, std::ceil(elements / std::max(1.0, sum_.threads * w.lanes)));
  sum_.contiguous = std::max(sum_.contiguous, w.contiguous);
  sum_.lanes = std::max(sum_.lanes, w.lanes);
  sum_.rounds = std::max(sum_.rounds, w.executions / sum_.blocks / std::max(1.0, elements));
}

void GpuEstimate::AddSumOfParts(const WorkOfStage& w) {
  const double sets = static_cast<double>(kernel_.thread_sets);
  const double reads = w.warp_executions * (kernel_.cluster > 1 ? static_cast<double>(kernel_.cluster) : sets);
  sum_.issue += reads * (1 + 1 / w.lanes);
  sum_.shared_time += reads / w.lanes;
  // Those of a block are summed before, by vectors of four.
  const double within = kernel_.cluster > 1 && sets > 1 ? reads * (sets + 1) / 4 : 0;
  sum_.issue += within * 2;
  sum_.shared_time += within;
}

double GpuEstimate::ResidentBlocks() const {
  const auto threads = static_cast<double>(std::max<int64_t>(32, kernel_.threads + kernel_.producers));
  const double registers = 32 + static_cast<double>(kernel_.local_elements) * 1.15;
  const double by_threads = std::floor(static_cast<double>(facts_.max_threads_per_core) / threads);
  const double by_registers = std::floor(facts_.registers_per_core / (registers * threads));
  const double by_shared = std::floor(static_cast<double>(facts_.shared_bytes_per_core) /
                                      (static_cast<double>(kernel_.shared_bytes) + 1024));
  return std::max(1.0, std::min({32.0, by_threads, by_registers, by_shared}));
}

double GpuEstimate::Seconds(float* f) const {
  const Sum& w = sum_;
  const double resident = ResidentBlocks();
  const double per_core = std::ceil(w.blocks / facts_.num_cores);
  const double active_warps = std::min(resident, per_core) * w.warps;
  // A warp's products have the tensor core of its quarter of the multiprocessor.
  const double quarters = w.by_warps ? std::min(4.0, active_warps) : 4;
  const double cycles_fma = per_core * w.fma / quarters, cycles_issue = per_core * w.issue / 4,
               cycles_shared = per_core * w.shared_time;
  // One outer reduce step: copies come from L2, everyone waits, then the products; other resident blocks fill the gap.
  const double step = w.rounds > 1 || w.copy_rounds > 0 ? 700.0 + 30 * w.copy_rounds : 400.0;
  const double hide = std::max(1.0, std::min(active_warps / 4, 16.0));
  const double waves = std::ceil(per_core / resident);
  // With several slots the copies of a step were started some steps before.
  double latency = waves * (w.rounds * std::max(step / w.slots, 150.0) + 1200);
  // Two barriers and reading from each block in turn: 1.1 to 1.4 us with 8 blocks, 3 us with 16, in hand-written
  // kernels on an H200.
  if (kernel_.cluster > 1) latency += 600 + 200.0 * static_cast<double>(kernel_.cluster);
  // Warpgroups wait for their sums at the end of each step, where others may go on; with two slots for the next step's
  // copies too.
  const double groups = std::max(1.0, active_warps / 4);
  const double exposed = w.depth > 0 ? 1.2 + 0.4 / groups * std::max(1.0, 32 / w.depth) + (w.slots < 3 ? 0.4 : 0)
                                     : std::max(1.0, 8.0 / (groups * std::min(w.ilp, 16.0) / 4));
  // Of what hardware could do at once little is: kernels of microseconds have too few warps for it. The shares were
  // fitted to 26,000 trials of nine histories of an H200 (docs/lab-notes.md, "What the model and the warm start are
  // worth"): against the longest of these they put more pairs in order in each.
  const double cycles = 0.85 * cycles_fma + 0.126 * cycles_issue * std::pow(std::max(1.0, 4 / hide), 1.2) +
                        1.2 * cycles_shared + 0.36 * latency;
  const double memory = std::max(w.bytes / facts_.l2_bandwidth, w.unique / facts_.bandwidth);
  // Threads that copy the same keep the kernel longer (docs/lab-notes.md, "Tensor copies, and a producer warpgroup").
  const double boxes = w.boxes ? 0.95 : 1;
  // A producer takes threads: of two that are equal otherwise, the kernel without one comes first.
  const double producer = kernel_.producers > 0 ? 1.01 : 1;
  const double seconds =
      facts_.launch_seconds + boxes * producer * std::max(memory, cycles / facts_.clock_hz + 0.425 * memory);
  const double values[] = {Log2(w.blocks),
                           Log2(kernel_.threads),
                           Log2(kernel_.shared_bytes),
                           Log2(kernel_.local_elements),
                           resident,
                           w.blocks / (facts_.num_cores * resident),
                           per_core * facts_.num_cores / w.blocks,
                           active_warps,
                           Log2(cycles_fma),
                           Log2(cycles_issue),
                           Log2(cycles_shared),
                           Log2(latency),
                           exposed,
                           Log2(w.bytes),
                           Log2(w.unique),
                           w.loads_per_op,
                           Log2(w.ilp),
                           w.conflict,
                           Log2(w.copy_rounds),
                           Log2(w.rounds),
                           w.contiguous,
                           w.lanes,
                           Log2(w.operations),
                           Log2(w.body),
                           w.operations / std::max(1.0, w.bytes),
                           Log2(kernel_.unrolled),
                           Log2(seconds * 1e9),
                           Log2(memory * 1e9)};
  static_assert(std::size(values) == std::size(kGpuFeatureNames));
  std::copy(std::begin(values), std::end(values), f);
  return seconds;
}

}  // namespace diapason
