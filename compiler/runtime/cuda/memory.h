// What the program holds on a GPU: buffers and loaded kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library.h"
#include "compiler/runtime/device.h"

namespace diapason {

class CudaBuffer : public DeviceBuffer {
 public:
  // cuda: null for a view, which owns nothing.
  CudaBuffer(const CudaLibrary* cuda, CUcontext context, CUdeviceptr address, int64_t bytes)
      : cuda_(cuda), context_(context), address_(address), bytes_(bytes) {}
  ~CudaBuffer() override {
    if (cuda_ == nullptr) return;
    cuda_->CtxSetCurrent(context_);
    cuda_->MemFree(address_);  // after a fault every call fails; the end of the process frees all
  }
  int64_t bytes() const override { return bytes_; }
  CUdeviceptr address() const { return address_; }

 private:
  const CudaLibrary* const cuda_;
  const CUcontext context_;
  const CUdeviceptr address_;
  const int64_t bytes_;
};

inline CUdeviceptr GpuAddressOf(const DeviceBuffer& buffer) { return static_cast<const CudaBuffer&>(buffer).address(); }

class CudaModule : public Module {
 public:
  CudaModule(const CudaLibrary& cuda, CUcontext context, CUmodule module)
      : cuda_(cuda), context_(context), module_(module) {}
  ~CudaModule() override {
    cuda_.CtxSetCurrent(context_);
    cuda_.ModuleUnload(module_);
  }
  CUmodule get() const { return module_; }

 private:
  const CudaLibrary& cuda_;
  const CUcontext context_;
  const CUmodule module_;
};

// A buffer of memory of its own; the errors are Device::Allocate's. REQUIRES: the context is the thread's.
absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateOnGpu(const CudaLibrary& cuda, CUcontext context, int64_t bytes);

}  // namespace diapason
