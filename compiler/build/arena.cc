#include "compiler/build/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

bool Overlap(const ArenaPart& a, const ArenaPart& b) {
  return std::max(a.offset, b.offset) < std::min(a.offset + a.bytes, b.offset + b.bytes);
}

}  // namespace

std::vector<std::vector<size_t>> MutuallyOverlapping(const std::vector<ArenaPart>& parts) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return parts[a].bytes > parts[b].bytes; });
  std::vector<std::vector<size_t>> groups;
  for (const size_t i : order) {
    const auto fits = std::find_if(groups.begin(), groups.end(), [&](const std::vector<size_t>& group) {
      return std::all_of(group.begin(), group.end(), [&](size_t other) { return Overlap(parts[i], parts[other]); });
    });
    if (fits != groups.end())
      fits->push_back(i);
    else
      groups.push_back({i});
  }
  return groups;
}

absl::StatusOr<Arena> Arena::Allocate(Device& device, int64_t bytes, const std::vector<ArenaPart>& parts) {
  Arena arena;
  arena.parts_.resize(parts.size());
  if (device.views_may_overlap()) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> memory, device.Allocate(bytes));
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSIGN_OR_RETURN(arena.parts_[i], device.View(*memory, parts[i].offset, parts[i].bytes));
    }
    arena.memory_.push_back(std::move(memory));
    return arena;
  }
  for (const std::vector<size_t>& group : MutuallyOverlapping(parts)) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> memory, device.Allocate(parts[group[0]].bytes));
    for (const size_t i : group) {
      ASSIGN_OR_RETURN(arena.parts_[i], device.View(*memory, 0, parts[i].bytes));
    }
    arena.memory_.push_back(std::move(memory));
  }
  return arena;
}

absl::Status Arena::Fill(Device& device, uint8_t value) {
  for (const auto& memory : memory_)
    if (memory->bytes() > 0) RETURN_IF_ERROR(device.Fill(*memory, value));
  return absl::OkStatus();
}

}  // namespace diapason
