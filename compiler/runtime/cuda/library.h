// libcuda's functions, found at run time. For the cuda device alone: brings in <cuda.h>.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/dynamic_library.h"

namespace diapason {

// Every driver function that the device uses, with the symbol that has the signature written here: <cuda.h> maps plain
// names to the newest versions of its own release by macros, which a driver of another release may not have.
#define DIAPASON_CUDA_FUNCTIONS(F)                                                                                    \
  F(Init, "cuInit", unsigned)                                                                                         \
  F(DriverGetVersion, "cuDriverGetVersion", int*)                                                                     \
  F(GetErrorName, "cuGetErrorName", CUresult, const char**)                                                           \
  F(GetErrorString, "cuGetErrorString", CUresult, const char**)                                                       \
  F(DeviceGetCount, "cuDeviceGetCount", int*)                                                                         \
  F(DeviceGet, "cuDeviceGet", CUdevice*, int)                                                                         \
  F(DeviceGetName, "cuDeviceGetName", char*, int, CUdevice)                                                           \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", int*, CUdevice_attribute, CUdevice)                                   \
  F(DeviceGetUuid, "cuDeviceGetUuid", CUuuid*, CUdevice)                                                              \
  F(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CUcontext*, CUdevice)                                               \
  F(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", CUdevice)                                                      \
  F(CtxSetCurrent, "cuCtxSetCurrent", CUcontext)                                                                      \
  F(MemAlloc, "cuMemAlloc_v2", CUdeviceptr*, size_t)                                                                  \
  F(MemFree, "cuMemFree_v2", CUdeviceptr)                                                                             \
  F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", CUdeviceptr, const void*, size_t, CUstream)                              \
  F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void*, CUdeviceptr, size_t, CUstream)                                    \
  F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", CUdeviceptr, CUdeviceptr, size_t, CUstream)                              \
  F(MemsetD8Async, "cuMemsetD8Async", CUdeviceptr, unsigned char, size_t, CUstream)                                   \
  F(StreamCreate, "cuStreamCreate", CUstream*, unsigned)                                                              \
  F(StreamDestroy, "cuStreamDestroy_v2", CUstream)                                                                    \
  F(StreamSynchronize, "cuStreamSynchronize", CUstream)                                                               \
  F(StreamBeginCapture, "cuStreamBeginCapture_v2", CUstream, CUstreamCaptureMode)                                     \
  F(StreamEndCapture, "cuStreamEndCapture", CUstream, CUgraph*)                                                       \
  F(GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", CUgraphExec*, CUgraph, unsigned long long)              \
  F(GraphLaunch, "cuGraphLaunch", CUgraphExec, CUstream)                                                              \
  F(GraphDestroy, "cuGraphDestroy", CUgraph)                                                                          \
  F(GraphExecDestroy, "cuGraphExecDestroy", CUgraphExec)                                                              \
  F(EventCreate, "cuEventCreate", CUevent*, unsigned)                                                                 \
  F(EventDestroy, "cuEventDestroy_v2", CUevent)                                                                       \
  F(StreamWaitEvent, "cuStreamWaitEvent", CUstream, CUevent, unsigned)                                                \
  F(EventRecord, "cuEventRecord", CUevent, CUstream)                                                                  \
  F(EventRecordWithFlags, "cuEventRecordWithFlags", CUevent, CUstream, unsigned)                                      \
  F(EventElapsedTime, "cuEventElapsedTime", float*, CUevent, CUevent)                                                 \
  F(ModuleLoadDataEx, "cuModuleLoadDataEx", CUmodule*, const void*, unsigned, CUjit_option*, void**)                  \
  F(ModuleUnload, "cuModuleUnload", CUmodule)                                                                         \
  F(ModuleGetFunction, "cuModuleGetFunction", CUfunction*, CUmodule, const char*)                                     \
  F(FuncSetAttribute, "cuFuncSetAttribute", CUfunction, CUfunction_attribute, int)                                    \
  F(LaunchKernel, "cuLaunchKernel", CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    CUstream, void**, void**)

struct CudaLibrary {
#define DIAPASON_DECLARE(member, symbol, ...) CUresult(CUDAAPI* member)(__VA_ARGS__) = nullptr;
  DIAPASON_CUDA_FUNCTIONS(DIAPASON_DECLARE)
#undef DIAPASON_DECLARE
  // Drivers of 11.8 and later; null before. Needed for clusters alone.
  CUresult(CUDAAPI* LaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**) = nullptr;
  // Of CUDA 12.0 and later; null before. Needed for tensor maps alone. The enumerations are integers here, since older
  // headers lack them.
  CUresult(CUDAAPI* TensorMapEncodeTiled)(void* map, int type, cuuint32_t rank, void* address,
                                          const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                          const cuuint32_t* element_strides, int interleave, int swizzle,
                                          int l2_promotion, int out_of_bounds) = nullptr;
  CUresult(CUDAAPI* TensorMapEncodeIm2col)(void* map, int type, cuuint32_t rank, void* address,
                                           const cuuint64_t* extents, const cuuint64_t* strides,
                                           const int* lower_corner, const int* upper_corner, cuuint32_t channels,
                                           cuuint32_t pixels, const cuuint32_t* element_strides, int interleave,
                                           int swizzle, int l2_promotion, int out_of_bounds) = nullptr;
  // For Plan::Redirect alone; null where the driver lacks them. Of GetCaptureInfo the third version (CUDA 12.3) is
  // taken where there is one: the second knows nothing of the data of edges, which kernels that start early have.
  CUresult(CUDAAPI* GraphExecKernelNodeSetParams)(CUgraphExec, CUgraphNode,
                                                  const CUDA_KERNEL_NODE_PARAMS_v1*) = nullptr;
  CUresult(CUDAAPI* StreamGetCaptureInfo2)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                           size_t*) = nullptr;
  CUresult(CUDAAPI* StreamGetCaptureInfo3)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                           const void** edge_data, size_t*) = nullptr;

  // Opened and initialised once a process, and kept. Unavailable says what is missing and what to do.
  static absl::StatusOr<const CudaLibrary*> Get();

  // "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
  std::string ErrorText(CUresult result) const;
  // Out of memory is ResourceExhausted; a launch that the driver refuses, or a binary for another architecture,
  // FailedPrecondition; a fault of a kernel, and all that follows it, Aborted; one of the device, which was reset or is
  // broken, Unknown; a bad binary InvalidArgument; no device Unavailable; others Internal. The text is "<doing>: <CUDA
  // name and words>".
  absl::Status ToStatus(CUresult result, const std::string& doing) const;
};

}  // namespace diapason
