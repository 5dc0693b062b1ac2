#include "compiler/runtime/cuda/memory.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {

absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateOnGpu(const CudaLibrary& cuda, CUcontext context, int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes cannot be"));
  CUdeviceptr address = 0;
  const CUresult result = bytes > INT64_MAX - Device::kPadding
                              ? CUDA_ERROR_OUT_OF_MEMORY
                              : cuda.MemAlloc(&address, static_cast<size_t>(bytes + Device::kPadding));
  RETURN_IF_ERROR(cuda.ToStatus(result, absl::StrCat("allocating a buffer of ", bytes, " bytes")));
  return std::make_unique<CudaBuffer>(&cuda, context, address, bytes);
}

}  // namespace diapason
