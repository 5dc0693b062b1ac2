// Tensor maps of kernels (CUtensorMap) for the addresses of a launch.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library.h"
#include "compiler/tensor/program.h"

namespace diapason {

// As a kernel takes it, by value.
struct alignas(64) EncodedTensorMap {
  uint64_t words[16] = {};
};

// One for each of Kernel::tensor_maps, of the buffers at these addresses. FailedPrecondition: the driver has none (CUDA
// 12.0 and later do), or does not like one. REQUIRES: IsCopyable, of each.
absl::StatusOr<std::vector<EncodedTensorMap>> EncodeTensorMaps(const CudaLibrary& cuda, const Kernel& kernel,
                                                               const std::vector<CUdeviceptr>& args);

}  // namespace diapason
