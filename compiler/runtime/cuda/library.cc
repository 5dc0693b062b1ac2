#include "compiler/runtime/cuda/library.h"

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

struct OpenedCuda {
  CudaLibrary functions;
  std::unique_ptr<DynamicLibrary> library;
  std::string problem;
};

OpenedCuda* OpenCuda() {
  auto* opened = new OpenedCuda;
  opened->library = DynamicLibrary::Open({"libcuda.so.1", "libcuda.so"});
  if (opened->library == nullptr) {
    opened->problem =
        "target 'cuda' needs the NVIDIA driver, and its library libcuda.so.1 is not on this machine; install the "
        "driver, or "
        "choose target 'cpu' or 'opencl'";
    return opened;
  }
  CudaLibrary& cuda = opened->functions;
#define DIAPASON_FIND(member, symbol, ...)         \
  if (!opened->library->Find(symbol, cuda.member)) \
    opened->problem = "the NVIDIA driver has no function " symbol "; install driver 470 or later (CUDA 11.4)";
  DIAPASON_CUDA_FUNCTIONS(DIAPASON_FIND)
#undef DIAPASON_FIND
  if (!opened->problem.empty()) return opened;
  opened->library->Find("cuLaunchKernelEx", cuda.LaunchKernelEx);
  opened->library->Find("cuTensorMapEncodeTiled", cuda.TensorMapEncodeTiled);
  opened->library->Find("cuTensorMapEncodeIm2col", cuda.TensorMapEncodeIm2col);
  opened->library->Find("cuGraphExecKernelNodeSetParams", cuda.GraphExecKernelNodeSetParams);
  opened->library->Find("cuStreamGetCaptureInfo_v2", cuda.StreamGetCaptureInfo2);
  opened->library->Find("cuStreamGetCaptureInfo_v3", cuda.StreamGetCaptureInfo3);
  if (const CUresult result = cuda.Init(0); result != CUDA_SUCCESS) {
    opened->problem = absl::StrCat("target 'cuda': the NVIDIA driver does not start: ", cuda.ErrorText(result),
                                   "; check that nvidia-smi lists a GPU");
  }
  return opened;
}

}  // namespace

absl::StatusOr<const CudaLibrary*> CudaLibrary::Get() {
  static const OpenedCuda* const opened = OpenCuda();
  if (!opened->problem.empty()) return absl::UnavailableError(opened->problem);
  return &opened->functions;
}

std::string CudaLibrary::ErrorText(CUresult result) const {
  const char *name = nullptr, *words = nullptr;
  if (GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return absl::StrCat("CUDA error ", static_cast<int>(result));
  if (GetErrorString(result, &words) != CUDA_SUCCESS || words == nullptr) return name;
  return absl::StrCat(name, " (", words, ")");
}

absl::Status CudaLibrary::ToStatus(CUresult result, const std::string& doing) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(doing, ": ", ErrorText(result));
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return absl::ResourceExhaustedError(text);
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_CLUSTER_SIZE:
    case CUDA_ERROR_NOT_SUPPORTED: return absl::FailedPreconditionError(text);
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_INVALID_PTX: return absl::InvalidArgumentError(text);
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT: return absl::AbortedError(text);
    // Not what a kernel does: memory and links that fail, a driver that was reset.
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_UNKNOWN: return absl::UnknownError(text);
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_SERVER_NOT_READY: return absl::UnavailableError(text);
    default: return absl::InternalError(text);
  }
}

}  // namespace diapason
