// The memory of a plan's intermediate tensors on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// What a memory plan (memory_plan.h) gives a tensor. Parts that overlap are never in use at the same time.
struct ArenaPart {
  int64_t offset = 0, bytes = 0;  // offset: a multiple of kArenaAlignment
};

// Must not outlive its device.
class Arena {
 public:
  // One buffer of `bytes` with a view for each part; where views may not overlap (Device::views_may_overlap), a buffer
  // for each of MutuallyOverlapping(parts), which takes more memory in all. ResourceExhausted when memory is out.
  // REQUIRES: parts lie in [0, bytes].
  static absl::StatusOr<Arena> Allocate(Device& device, int64_t bytes, const std::vector<ArenaPart>& parts);

  // By position in `parts`.
  const std::shared_ptr<DeviceBuffer>& part(size_t i) const { return parts_[i]; }
  absl::Status Fill(Device& device, uint8_t value);

 private:
  // In order of construction: parts are views of memory.
  std::vector<std::unique_ptr<DeviceBuffer>> memory_;
  std::vector<std::shared_ptr<DeviceBuffer>> parts_;
};

// Positions of `parts` in groups whose members overlap each other, all with all, so that no two of a group are in use
// at the same time. Greedy, the largest part first: few groups, not the fewest. Deterministic.
std::vector<std::vector<size_t>> MutuallyOverlapping(const std::vector<ArenaPart>& parts);

}  // namespace diapason
