// Tensors of other frameworks by DLPack. The structures are declared here as its ABI of version 1 has them: Debian 12
// has 0.6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/run_context.h"

extern "C" {

struct DLPackVersion {
  uint32_t major, minor;
};

struct DLDevice {
  int32_t device_type;  // DLDeviceType
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;  // DLDataTypeCode
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense, row-major
  uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

}  // extern "C"

namespace diapason {

// diapason_run_dlpack. On success every output is set.
absl::Status RunDlpack(RunContext& context, const std::shared_ptr<LoadedPackage>& package, void* stream,
                       absl::Span<DLManagedTensorVersioned* const> inputs,
                       absl::Span<DLManagedTensorVersioned*> outputs);

}  // namespace diapason
