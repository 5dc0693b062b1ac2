// The memory of a plan's intermediate tensors on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// The place of a tensor in a memory plan (memory_plan.h). Parts that overlap are never in use at the same time.
struct ArenaPart {
  int64_t offset = 0, bytes = 0;  // offset: a multiple of kArenaAlignment
};

// Must not outlive its device.
class Arena {
 public:
  // Allocates one buffer of `bytes` with a view for each part. If views may not overlap (Device::views_may_overlap),
  // allocates a buffer for each group of MutuallyOverlapping(parts) instead, which takes more memory in total.
  // ResourceExhausted: out of memory. REQUIRES: all parts are within [0, bytes].
  static absl::StatusOr<Arena> Allocate(Device& device, int64_t bytes, const std::vector<ArenaPart>& parts);

  // By position in `parts`.
  const std::shared_ptr<DeviceBuffer>& part(size_t i) const { return parts_[i]; }
  absl::Status Fill(Device& device, uint8_t value);

 private:
  // In order of construction: parts are views of memory.
  std::vector<std::unique_ptr<DeviceBuffer>> memory_;
  std::vector<std::shared_ptr<DeviceBuffer>> parts_;
};

// Divides parts, given by their positions, into groups in which every two overlap, so that no two parts of a group are
// in use at the same time. Greedy, the largest part first, so the number of groups need not be minimal. Deterministic.
std::vector<std::vector<size_t>> MutuallyOverlapping(const std::vector<ArenaPart>& parts);

}  // namespace diapason
