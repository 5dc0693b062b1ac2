// Buffers that were used and are taken again by size.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// One thread at a time. The device outlives it.
class BufferPool {
 public:
  // `fill`: the bytes that buffers have when they are made; users that need them so leave them so, or Clear the pool.
  BufferPool(Device& device, int64_t most_bytes, std::optional<uint8_t> fill = std::nullopt)
      : device_(device), most_bytes_(most_bytes), fill_(fill) {}
  // Contents are undefined unless there is a fill. ResourceExhausted when memory is out, also without what the pool
  // holds.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Take(int64_t bytes);
  // Keeps it for later; the ones kept longest go when there is too much.
  void Give(std::unique_ptr<DeviceBuffer> buffer);
  void Clear() { kept_.clear(); }

 private:
  Device& device_;
  const int64_t most_bytes_;
  const std::optional<uint8_t> fill_;
  std::list<std::unique_ptr<DeviceBuffer>> kept_;  // given last in front
};

}  // namespace diapason
