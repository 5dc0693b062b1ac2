// The analytic estimate and the features of a kernel on a GPU.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "scheduler/sketch/feature_names.h"
#include "scheduler/sketch/metrics.h"

namespace diapason {

// What a kernel's stages add up to. Times are of one block, in instructions or wavefronts of warps.
struct MetricsModel::GpuWork {
  double blocks, threads, warps;  // of the kernel; threads and warps of a block
  double fma = 0, issue = 0, shared_time = 0;
  double bytes = 0, unique = 0, operations = 0;
  double depth = 0;              // of a step of products by warpgroups; 0: there are none
  double slots = 1, rounds = 1;  // of copies of shared memory: buffers each, steps
  double copy_rounds = 0;        // most vectors that a thread copies in a step
  double loads_per_op = 0, ilp = 1, conflict = 1, contiguous = 1, lanes = 1, body = 1;
};

// One thread asks for a tile, all look whether it has come.
void MetricsModel::AddBulkCopy(const Bounds& bounds, int id, const Work& w, GpuWork* sum) const {
  const double per_block = w.executions / sum->blocks;
  const double steps = per_block / static_cast<double>(bounds.stages[id].elements());
  sum->issue += 6 * steps * sum->warps;
  sum->shared_time += per_block / 128;
  sum->rounds = std::max(sum->rounds, steps);
}

void MetricsModel::AddReduction(const Bounds& bounds, const Resources& kernel, int id, const Work& w,
                                GpuWork* sum) const {
  const StageState& stage = skeleton_->state().stage(id);
  const bool tensor = stage.tensor != TensorMode::kNone && target_.kind == TargetKind::kCuda;
  const TensorIntrinsic* const intrinsic = tensor ? &TensorIntrinsicOf(stage.tensor) : nullptr;
  const double arithmetic = w.warp_executions * std::max(1.0, w.operations / 2);
  if (tensor && intrinsic->groups) {
    // Two thirds of that time, from shared memory; only rows are loaded and cut, for all columns at once, and added to
    // the sums. Rows that are not loaded are read by the products.
    const double columns = 4 * static_cast<double>(bounds.stages[id].extent[stage.loops[stage.tensor_n].parent]);
    sum->depth = static_cast<double>(bounds.stages[id].extent[stage.tensor_k]);
    sum->fma += arithmetic * intrinsic->fma;
    const double rows = 4 * intrinsic->loads;  // of 3xTF32: 1
    const bool loaded = !skeleton_->state().reads_core_matrices(id);
    const double conflict = loaded && !intrinsic->parts ? w.conflict : 1;
    sum->issue += arithmetic * (intrinsic->issue + (loaded ? 4.5 * rows / columns : 0));
    sum->shared_time += arithmetic * (intrinsic->shared + rows * conflict / columns);
    return;
  }
  sum->fma += arithmetic * (tensor ? intrinsic->fma : 1);
  const double bodies = w.warp_executions / w.body;
  const double loads = bodies * w.operand_loads * (tensor ? intrinsic->loads : 1);
  // Of shared memory each instruction and wavefront is counted; of others neighbours come together, half of them, say.
  const bool counted = w.wavefronts > 0 && !tensor;
  sum->issue += arithmetic * (tensor ? intrinsic->issue : 1) +
                (counted ? bodies * (w.shared_loads + w.other_loads * 0.6) : loads * 0.6);
  sum->shared_time += counted ? bodies * w.wavefronts : loads * 0.6 * w.conflict;
  sum->loads_per_op = std::max(sum->loads_per_op, w.operand_loads / w.body);
  sum->body = std::max(sum->body, w.body);
  sum->conflict = std::max(sum->conflict, w.conflict);
  sum->ilp = std::max(sum->ilp, std::min(w.body, static_cast<double>(kernel.local_elements)));
}

// Of elements into shared memory by the threads of a block.
void MetricsModel::AddCopy(const Bounds& bounds, int id, const Work& w, GpuWork* sum) const {
  const auto elements = static_cast<double>(bounds.stages[id].elements());
  sum->issue += w.warp_executions * (12.0 / w.lanes + 2);
  sum->shared_time += w.warp_executions / w.lanes;
  const State& state = skeleton_->state();
  if (target_.kind == TargetKind::kCuda && (state.has_small_parts(id) || state.is_rounded_in_place(id))) {
    // What was copied is read again, cut or rounded, and stored.
    sum->issue += w.warp_executions * (3 + 3 / w.lanes);
    sum->shared_time += w.warp_executions * 2 / w.lanes;
  }
  sum->copy_rounds = std::max(sum->copy_rounds, std::ceil(elements / std::max(1.0, sum->threads * w.lanes)));
  sum->contiguous = std::max(sum->contiguous, w.contiguous);
  sum->lanes = std::max(sum->lanes, w.lanes);
  sum->rounds = std::max(sum->rounds, w.executions / sum->blocks / std::max(1.0, elements));
}

// Each element that is written is read from all blocks of a cluster first, or from all sets of threads.
void MetricsModel::AddSumOfParts(const Resources& kernel, const Work& w, GpuWork* sum) const {
  const double sets = static_cast<double>(kernel.thread_sets);
  const double reads = w.warp_executions * (kernel.cluster > 1 ? static_cast<double>(kernel.cluster) : sets);
  sum->issue += reads * (1 + 1 / w.lanes);
  sum->shared_time += reads / w.lanes;
  // Those of a block are summed before, by vectors of four.
  const double within = kernel.cluster > 1 && sets > 1 ? reads * (sets + 1) / 4 : 0;
  sum->issue += within * 2;
  sum->shared_time += within;
}

MetricsModel::GpuWork MetricsModel::GpuWorkOf(const Bounds& bounds, const Resources& kernel) const {
  const auto threads = static_cast<double>(kernel.threads);
  GpuWork sum{.blocks = static_cast<double>(kernel.blocks), .threads = threads, .warps = std::ceil(threads / 32.0)};
  for (int id : MembersOf(kernel)) {
    const StageState& stage = skeleton_->state().stage(id);
    Work w;
    StageWork(bounds, id, &w);
    w.warp_executions = share_[id] * (w.executions / sum.blocks / std::max(1.0, std::min(32.0, threads)));
    sum.bytes += w.bytes;
    sum.unique += w.unique_bytes;
    if (stage.bulk) {
      AddBulkCopy(bounds, id, w, &sum);
      continue;
    }
    sum.operations += w.executions * w.operations;
    const bool copy = stage.memory == Memory::kShared;
    if (copy) sum.slots = std::max(sum.slots, static_cast<double>(bounds.stages[id].slots));
    if (stage.op.reduces()) {
      AddReduction(bounds, kernel, id, w, &sum);
    } else if (held_[id]) {
      sum.issue += w.warp_executions / w.body * w.shared_loads;
      sum.shared_time += w.warp_executions / w.body * w.wavefronts;
    } else if (copy) {
      AddCopy(bounds, id, w, &sum);
    } else {
      sum.issue += w.warp_executions * (4 + w.operations);
    }
    if (id != kernel.root) continue;
    const double written = static_cast<double>(stage.op.elements() * BytesOf(stage.op.dtype));
    sum.bytes += written;
    sum.unique += written;
    if (kernel.cluster * kernel.thread_sets > 1) AddSumOfParts(kernel, w, &sum);
  }
  return sum;
}

// Blocks that a multiprocessor holds at once.
double MetricsModel::ResidentBlocks(const Resources& kernel) const {
  const auto threads = static_cast<double>(std::max<int64_t>(32, kernel.threads));
  const double registers = 32 + static_cast<double>(kernel.local_elements) * 1.15;
  const double by_threads = std::floor(static_cast<double>(facts_.max_threads_per_core) / threads);
  const double by_registers = std::floor(facts_.registers_per_core / (registers * threads));
  const double by_shared =
      std::floor(static_cast<double>(facts_.shared_bytes_per_core) / (static_cast<double>(kernel.shared_bytes) + 1024));
  return std::max(1.0, std::min({32.0, by_threads, by_registers, by_shared}));
}

double MetricsModel::GpuSeconds(const Bounds& bounds, const Resources& kernel, float* f) const {
  const GpuWork w = GpuWorkOf(bounds, kernel);
  const double resident = ResidentBlocks(kernel);
  const double per_core = std::ceil(w.blocks / facts_.num_cores);
  const double active_warps = std::min(resident, per_core) * w.warps;
  const double cycles_fma = per_core * w.fma / 4, cycles_issue = per_core * w.issue / 4,
               cycles_shared = per_core * w.shared_time;
  // One outer reduce step: copies come from L2, everyone waits, then the products; other resident blocks fill the gap.
  const double step = w.rounds > 1 || w.copy_rounds > 0 ? 700.0 + 30 * w.copy_rounds : 400.0;
  const double hide = std::max(1.0, std::min(active_warps / 4, 16.0));
  const double waves = std::ceil(per_core / resident);
  // With several slots the copies of a step were started some steps before.
  double latency = waves * (w.rounds * std::max(step / w.slots, 150.0) + 1200);
  // Two barriers and reading from each block in turn: 1.1 to 1.4 us with 8 blocks, 3 us with 16, in hand-written
  // kernels on an H200.
  if (kernel.cluster > 1) latency += 600 + 200.0 * static_cast<double>(kernel.cluster);
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
  const double seconds = facts_.launch_seconds + std::max(memory, cycles / facts_.clock_hz + 0.425 * memory);
  const double values[] = {Log2(w.blocks),
                           Log2(kernel.threads),
                           Log2(kernel.shared_bytes),
                           Log2(kernel.local_elements),
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
                           Log2(kernel.unrolled),
                           Log2(seconds * 1e9),
                           Log2(memory * 1e9)};
  static_assert(std::size(values) == std::size(kGpuFeatureNames));
  std::copy(std::begin(values), std::end(values), f);
  return seconds;
}

}  // namespace diapason
