#include "compiler/runtime/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace diapason {

absl::StatusOr<std::unique_ptr<DeviceBuffer>> BufferPool::Take(int64_t bytes) {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& buffer) { return buffer->bytes() == bytes; });
  if (found != kept_.end()) {
    std::unique_ptr<DeviceBuffer> buffer = std::move(*found);
    kept_.erase(found);
    return buffer;
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> made = device_.Allocate(bytes);
  if (absl::IsResourceExhausted(made.status()) && !kept_.empty()) {
    Clear();
    made = device_.Allocate(bytes);
  }
  if (made.ok() && fill_.has_value()) RETURN_IF_ERROR(device_.Fill(**made, *fill_));
  return made;
}

void BufferPool::Give(std::unique_ptr<DeviceBuffer> buffer) {
  kept_.push_front(std::move(buffer));
  int64_t total = 0;
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    total += (*it)->bytes();
    if (total <= most_bytes_) continue;
    kept_.erase(it, kept_.end());
    break;
  }
}

}  // namespace diapason
