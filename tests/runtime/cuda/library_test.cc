// What an error of the driver means: the candidate's fault, or the device's.
#include "compiler/runtime/cuda/library.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(CudaLibrary, TellsFaultsOfKernelsFromThoseOfTheDevice) {
  CudaLibrary cuda;
  cuda.GetErrorName = [](CUresult, const char** text) {
    *text = "CUDA_ERROR_X";
    return CUDA_SUCCESS;
  };
  cuda.GetErrorString = [](CUresult, const char** text) {
    *text = "words";
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(cuda.ToStatus(CUDA_SUCCESS, "running"), absl::OkStatus());
  for (CUresult result : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                          CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_ASSERT})
    EXPECT_EQ(cuda.ToStatus(result, "running"), absl::AbortedError("running: CUDA_ERROR_X (words)")) << result;
  for (CUresult result :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_MPS_RPC_FAILURE, CUDA_ERROR_UNKNOWN})
    EXPECT_EQ(cuda.ToStatus(result, "running"), absl::UnknownError("running: CUDA_ERROR_X (words)")) << result;
  for (CUresult result : {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH})
    EXPECT_EQ(cuda.ToStatus(result, "opening"), absl::UnavailableError("opening: CUDA_ERROR_X (words)")) << result;
}

}  // namespace
}  // namespace diapason
