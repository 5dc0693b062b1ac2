// Targets, and the devices of this host that measure them. See model.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

// A device of this host, with the facts that the search uses. Those about blocks, warps, registers and shared memory
// have a meaning for GPUs only. Sizes are in bytes.
struct LocalDevice {
  // The target that measures on it. Of Devices: as short as it can be, with -device where there are several of the
  // kind. Of FindDevice: resolved, so that all attributes that kernels depend on are given, and without -device.
  std::string target;
  std::string title;  // "AMD EPYC, AVX-512"
  std::string model;  // "AMD EPYC": the device of records
  std::string uuid;   // empty: it has none
  std::string arch;   // "sm_90", "x86-64"
  std::string driver;
  int64_t cores = 1;  // threads of a processor, multiprocessors of a GPU
  int64_t max_threads_per_block = 1, max_threads_per_core = 1;
  int64_t max_shared_bytes = 0, shared_bytes_per_core = 0;  // of shared memory, for a block and of a multiprocessor
  int64_t registers_per_core = 0, max_registers_per_thread = 0;
  int64_t warp_size = 1;
  int64_t max_blocks_per_cluster = 1;                // 1: no clusters
  int64_t vector_bytes = 0, vector_registers = 0;    // of a core
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // caches
  double clock_hz = 0;
  double flops_per_s = 0;                      // peak in float32
  double bytes_per_s = 0, l2_bytes_per_s = 0;  // of memory, and of the second cache
  double launch_us = 0;                        // duration of an empty kernel

  bool is_gpu() const { return max_threads_per_block > 1; }
};

// All devices of this host: the processor always, then those of OpenCL and CUDA. Their drivers are asked in this
// process, and one that hangs hangs the call.
std::vector<LocalDevice> Devices();

// The device that a target names. InvalidArgument: the target does not parse, or names something that this host does
// not have; Unavailable: there is no such device.
absl::StatusOr<LocalDevice> FindDevice(const std::string& target);

// The target with its attributes in the order and form of records. No device is asked. InvalidArgument: it does not
// parse.
absl::StatusOr<std::string> NormalizeTarget(const std::string& target);

// The types "tf32" and "mixed" of a model are float32 on a target that allows more: replaces them by "float32" and adds
// -tf32 to the target, as Tasks, Tune and Build do. Other types change nothing. InvalidArgument: a tolerance without
// "mixed", or a target that is not cuda.
absl::Status MoveTypeToTarget(Model& model, std::string& target);

}  // namespace diapason::api
