// Takes a package apart: kernels, weights and launch parameters as a CMake project that needs nothing of ours.
//
//   DIR/NAME.h            the network as C functions
//   DIR/NAME.c            these
//   DIR/NAME_launches.h   tables: buffers, launches with their grids and arguments
//   DIR/kernels/          C sources (cpu), or cubins and their sources (cuda)
//   DIR/weights.bin       the package's
//   DIR/main.c            a program that runs the network on .npy files
//   DIR/CMakeLists.txt
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compiler/build/package.h"

namespace diapason {

struct KernelExportOptions {
  std::string dir;
  std::string name;  // prefix of all that the C code declares; empty: made of the network's name
};

// Writes the package's plan in use. InvalidArgument for a name that is no C identifier, and for packages that cannot be
// exported: of opencl, whose kernels only a driver compiles, and with calls of libraries. FailedPrecondition when there
// is something at `dir`; DataLoss for a damaged package. Disk errors name the path. Nothing is left of an export that
// failed.
// REQUIRES: PackageTask::output_stages are known (OpenPackage).
absl::Status ExportKernels(const Package& package, const KernelExportOptions& options);

}  // namespace diapason
