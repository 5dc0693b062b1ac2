#include "scheduler/sketch/kernel_resources.h"

#include <algorithm>

#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int64_t kMostSums = 128, kBesideSums = 26;  // registers of a lane for a product by warpgroups

}  // namespace

bool WithinLimits(const KernelResources& k, const Target& target, const DeviceFacts& facts) {
  // Compile time grows with the body: NVRTC takes a second for 500 multiply-adds in a row. A row of a 7x7 window over 3
  // channels for 4 pixels by 8 channels is 672.
  if (k.unrolled > (target.is_gpu() ? 768 : 1024)) return false;
  // Private tiles live on a thread's stack; register tiles far beyond the register file only spill.
  if (!target.is_gpu()) return k.local_bytes <= kStackBytes;
  if (k.threads + k.producers > facts.max_threads_per_block || k.shared_bytes > facts.max_shared_bytes) return false;
  if (k.cluster > std::max(1, facts.max_cluster)) return false;
  if (k.local_elements > 192) return false;
  const int64_t registers = k.local_elements + 24;
  if (registers * k.threads > facts.registers_per_core) return false;
  // ptxas wants registers for the sums of one product, of 256 columns at most, where all threads have as many (C7602);
  // only then do roles share them.
  if (k.producers > 0 &&
      (std::min(k.local_elements, kMostSums) + kBesideSums) * (k.threads + k.producers) > facts.registers_per_core)
    return false;
  return k.blocks <= (int64_t{1} << 31) - 1;
}

void ResourceCount::Add(int stage, const StageBounds& bounds, Role role) {
  AddLoops(stage, bounds);
  if (state_.stage(stage).attach == StageState::Attach::kAt) AddMemory(stage, bounds, role);
}

void ResourceCount::AddLoops(int id, const StageBounds& b) {
  const StageState& stage = state_.stage(id);
  KernelResources& k = kernel_;
  int64_t unrolled = 1;
  for (int loop : stage.order) {
    const Annotation a = stage.loops[loop].annotation;
    if (a == Annotation::kNone) continue;
    if (a == Annotation::kThreadX) {
      if (id == k.root || stage.loops[loop].reduce) k.threads = std::max(k.threads, b.extent[loop]);
      // Cross-thread reductions meet in shared memory.
      if (stage.loops[loop].reduce) k.shared_bytes += (b.extent[loop] * BytesOf(stage.op.dtype) + 15) / 16 * 16;
    } else if (a == Annotation::kBlockX || a == Annotation::kParallel) {
      k.blocks = b.extent[loop];
    } else if (a == Annotation::kCluster) {
      k.cluster = b.extent[loop];
    } else if (a == Annotation::kThreadSet) {
      k.thread_sets = b.extent[loop];
    } else if (a == Annotation::kUnroll) {
      unrolled *= b.extent[loop];
    }
  }
  if (b.producer && kind_ == TargetKind::kCuda) k.producers = kLanesOfGroup;
  // A product of 16x8x8 is 32 multiply-adds of each lane, and a handful of instructions.
  if (stage.tensor != TensorMode::kNone && kind_ == TargetKind::kCuda) {
    const int64_t depth = TensorIntrinsicOf(stage.tensor).depth();
    unrolled = (unrolled + depth - 1) / depth;
  }
  k.unrolled = std::max(k.unrolled, unrolled);
}

void ResourceCount::AddMemory(int id, const StageBounds& b, Role role) {
  const StageState& stage = state_.stage(id);
  const bool cuda = kind_ == TargetKind::kCuda;
  int64_t bytes = b.stored() * BytesOf(stage.op.dtype);
  if (cuda && state_.has_low_parts(id)) bytes = (bytes + 15) / 16 * 16 + b.low_parts() * BytesOf(stage.op.dtype);
  if (role.is_maximum) bytes += (bytes + 15) / 16 * 16;  // and how much it grew
  if (cuda && stage.bulk) apart_ += (b.slots * BytesOf(DType::kInt64) + 15) / 16 * 16;
  if (cuda && IsMadeByTensorCopies(stage, b)) apart_ += 2 * b.slots * BytesOf(DType::kInt64);  // arrivals, leavings
  if (stage.memory == Memory::kLanes && cuda) {
    // What is computed element by element takes the place of what it is computed from.
    const int64_t held = stage.op.reduces() ? ElementsOfThread(stage, b) : 0;
    kernel_.local_elements += role.is_maximum ? 2 * held : held;
  } else if (role.holds_parts) {
    tile_bytes_ += (bytes + 15) / 16 * 16;
  } else if (IsOfBlock(stage.memory)) {
    kernel_.shared_bytes += (bytes + 15) / 16 * 16;
  } else {
    kernel_.local_elements += b.elements() + GroupFactors(id, b);
    kernel_.local_bytes += bytes;
  }
}

// Sums of a run of k beside those of all, and factors of the rows with their low parts; or these factors alone.
int64_t ResourceCount::GroupFactors(int id, const StageBounds& b) const {
  const StageState& stage = state_.stage(id);
  if (kind_ != TargetKind::kCuda || stage.tensor == TensorMode::kNone) return 0;
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  if (!intrinsic.groups || state_.reads_core_matrices(id)) return 0;
  return intrinsic.parts ? b.elements() + std::min<int64_t>(32, b.extent[stage.tensor_k])
                         : 4 * b.extent[stage.tensor_k] / intrinsic.depth();
}

KernelResources ResourceCount::Total() const {
  KernelResources total = kernel_;
  total.blocks *= total.cluster;
  total.shared_bytes = std::max(total.shared_bytes, tile_bytes_) + apart_;
  return total;
}

}  // namespace diapason
