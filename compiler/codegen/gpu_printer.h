// Kernels as OpenCL C and CUDA C.
#pragma once

#include <string>

#include "compiler/codegen/expr_printer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

// One kernel. Vector loops whose stores run along memory, aligned, become 8 or 16-byte accesses; other ones are
// unrolled. Shared buffers are arrays at the head of the kernel, or, on cuda past kMaxStaticSharedBytes together, parts
// of the dynamic shared memory. REQUIRES: on OpenCL, no clusters (WithoutClusters, codegen/cluster_passes.h).
std::string PrintGpuKernel(const KernelFunc& kernel, Dialect dialect, Helpers& helpers);

// Bytes of shared memory that the printed kernel asks for, static or dynamic.
int64_t SharedBytesOf(const KernelFunc& kernel);

// What stands before the kernels: types and extensions.
std::string GpuPrelude(Dialect dialect);

}  // namespace diapason
