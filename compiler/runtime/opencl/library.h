// libOpenCL's functions, found at run time. For device.cc alone: brings in the OpenCL headers.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/dynamic_library.h"

namespace diapason {

// Every function that the device uses, named once.
// clang-format off
#define DIAPASON_OPENCL_FUNCTIONS(F) \
  F(clGetPlatformIDs) \
  F(clGetDeviceIDs) \
  F(clGetDeviceInfo) \
  F(clCreateContext) \
  F(clReleaseContext) \
  F(clCreateCommandQueue) \
  F(clReleaseCommandQueue) \
  F(clCreateBuffer) \
  F(clCreateSubBuffer) \
  F(clReleaseMemObject) \
  F(clRetainMemObject) \
  F(clCreateProgramWithSource) \
  F(clBuildProgram) \
  F(clGetProgramBuildInfo) \
  F(clReleaseProgram) \
  F(clCreateKernel) \
  F(clReleaseKernel) \
  F(clSetKernelArg) \
  F(clEnqueueNDRangeKernel) \
  F(clEnqueueReadBuffer) \
  F(clEnqueueWriteBuffer) \
  F(clEnqueueCopyBuffer) \
  F(clEnqueueFillBuffer) \
  F(clFinish) \
  F(clGetEventProfilingInfo) \
  F(clReleaseEvent)
// clang-format on

struct OpenClLibrary {
#define DIAPASON_DECLARE(name) decltype(&::name) name = nullptr;
  DIAPASON_OPENCL_FUNCTIONS(DIAPASON_DECLARE)
#undef DIAPASON_DECLARE

  // Opened once a process and kept. Unavailable says what to install.
  static absl::StatusOr<const OpenClLibrary*> Get();
  // All devices of all platforms, GPUs first, then CPUs, then the rest.
  std::vector<cl_device_id> Devices() const;
};

// "CL_INVALID_WORK_GROUP_SIZE"; "OpenCL error -1234" for one without a name here.
std::string OpenClErrorName(cl_int error);
// Memory errors are ResourceExhausted, refused launches FailedPrecondition, a lost device Unknown, the rest Aborted;
// the text is "<doing>: <error name>".
absl::Status OpenClStatus(cl_int error, const std::string& doing);

}  // namespace diapason
