#include "compiler/build/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

bool LiveTogether(const PlannedTensor& a, const PlannedTensor& b) {
  return (a.first <= b.last && b.first <= a.last) || (a.shallowest <= b.deepest && b.shallowest <= a.deepest);
}

// The lowest offset with `bytes` free between the pieces taken, which are [begin, end) in order of begin.
int64_t LowestGap(const std::vector<std::pair<int64_t, int64_t>>& taken, int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - offset >= bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

}  // namespace

MemoryPlan PlanMemory(const std::vector<PlannedTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tensors[a].bytes > tensors[b].bytes; });
  MemoryPlan plan;
  plan.offsets.resize(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const PlannedTensor& tensor = tensors[order[i]];
    DIAPASON_CHECK(tensor.bytes >= 0 && tensor.first <= tensor.last);
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t j = 0; j < i; ++j) {
      const PlannedTensor& other = tensors[order[j]];
      if (!LiveTogether(tensor, other)) continue;
      taken.emplace_back(plan.offsets[order[j]], plan.offsets[order[j]] + Aligned(other.bytes));
    }
    std::sort(taken.begin(), taken.end());
    const int64_t offset = LowestGap(taken, Aligned(tensor.bytes));
    plan.offsets[order[i]] = offset;
    plan.bytes = std::max(plan.bytes, offset + Aligned(tensor.bytes));
  }
  return plan;
}

}  // namespace diapason
