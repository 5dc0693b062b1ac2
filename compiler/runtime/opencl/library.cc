#include "compiler/runtime/opencl/library.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

struct OpenedOpenCl {
  OpenClLibrary functions;
  std::unique_ptr<DynamicLibrary> library;
  std::string problem;
};

OpenedOpenCl* OpenOpenCl() {
  auto* opened = new OpenedOpenCl;
  opened->library = DynamicLibrary::Open({"libOpenCL.so.1", "libOpenCL.so"});
  if (opened->library == nullptr) {
    opened->problem =
        "target 'opencl' needs libOpenCL.so.1, which is not on this machine; install an OpenCL driver (Debian: "
        "ocl-icd-libopencl1 "
        "with pocl-opencl-icd, or the GPU vendor's)";
    return opened;
  }
#define DIAPASON_FIND(name)                                  \
  if (!opened->library->Find(#name, opened->functions.name)) \
    opened->problem = "libOpenCL.so.1 has no function " #name "; install an OpenCL driver of version 1.2 or later";
  DIAPASON_OPENCL_FUNCTIONS(DIAPASON_FIND)
#undef DIAPASON_FIND
  return opened;
}

}  // namespace

absl::StatusOr<const OpenClLibrary*> OpenClLibrary::Get() {
  static const OpenedOpenCl* const opened = OpenOpenCl();
  if (!opened->problem.empty()) return absl::UnavailableError(opened->problem);
  return &opened->functions;
}

std::vector<cl_device_id> OpenClLibrary::Devices() const {
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> platforms(count);
  if (count > 0) clGetPlatformIDs(count, platforms.data(), nullptr);
  std::vector<cl_device_id> all;
  for (const auto type :
       std::initializer_list<cl_device_type>{CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_ALL}) {
    for (cl_platform_id platform : platforms) {
      if (clGetDeviceIDs(platform, type, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
      std::vector<cl_device_id> devices(count);
      clGetDeviceIDs(platform, type, count, devices.data(), nullptr);
      for (cl_device_id device : devices)
        if (std::find(all.begin(), all.end(), device) == all.end()) all.push_back(device);
    }
  }
  return all;
}

std::string OpenClErrorName(cl_int error) {
  switch (error) {
#define DIAPASON_NAME(name) \
  case name: return #name;
    DIAPASON_NAME(CL_DEVICE_NOT_FOUND)
    DIAPASON_NAME(CL_DEVICE_NOT_AVAILABLE)
    DIAPASON_NAME(CL_COMPILER_NOT_AVAILABLE)
    DIAPASON_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    DIAPASON_NAME(CL_OUT_OF_RESOURCES)
    DIAPASON_NAME(CL_OUT_OF_HOST_MEMORY)
    DIAPASON_NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    DIAPASON_NAME(CL_BUILD_PROGRAM_FAILURE)
    DIAPASON_NAME(CL_INVALID_VALUE)
    DIAPASON_NAME(CL_INVALID_BUFFER_SIZE)
    DIAPASON_NAME(CL_INVALID_MEM_OBJECT)
    DIAPASON_NAME(CL_INVALID_KERNEL_NAME)
    DIAPASON_NAME(CL_INVALID_KERNEL_ARGS)
    DIAPASON_NAME(CL_INVALID_ARG_INDEX)
    DIAPASON_NAME(CL_INVALID_ARG_VALUE)
    DIAPASON_NAME(CL_INVALID_ARG_SIZE)
    DIAPASON_NAME(CL_INVALID_WORK_DIMENSION)
    DIAPASON_NAME(CL_INVALID_WORK_GROUP_SIZE)
    DIAPASON_NAME(CL_INVALID_WORK_ITEM_SIZE)
    DIAPASON_NAME(CL_INVALID_GLOBAL_WORK_SIZE)
    DIAPASON_NAME(CL_INVALID_EVENT)
#undef DIAPASON_NAME
    default: return absl::StrCat("OpenCL error ", error);
  }
}

absl::Status OpenClStatus(cl_int error, const std::string& doing) {
  if (error == CL_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(doing, ": ", OpenClErrorName(error));
  switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE: return absl::ResourceExhaustedError(text);
    case CL_OUT_OF_RESOURCES:  // at a launch: too many registers or too much local memory
    case CL_INVALID_KERNEL_ARGS:
    case CL_INVALID_ARG_INDEX:
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_WORK_DIMENSION:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
    case CL_INVALID_GLOBAL_WORK_SIZE: return absl::FailedPreconditionError(text);
    case CL_DEVICE_NOT_AVAILABLE: return absl::UnknownError(text);
    default: return absl::AbortedError(text);
  }
}

}  // namespace diapason
