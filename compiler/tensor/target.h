// Targets, in a syntax like TVM's, and the properties of devices that search and lowering use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

enum class TargetKind : uint8_t { kCpu = 1, kOpenCl = 2, kCuda = 3 };

// What the caches hold when a kernel that is timed begins.
enum class Caches : uint8_t {
  // What they would in a network: constants come from memory, and on cuda inputs were just written. On opencl the same
  // as kWarm.
  kNetwork = 0,
  kWarm = 1,  // its own operands, since the same kernel ran before: a kernel by itself, which is called again and again
  kFlushed = 2,  // nothing
};

const char* NameOf(Caches caches);  // "network", "warm", "flushed"

// Where the normalizations of narrow floats are computed: behind the products that read them (DeferNorms), or in
// kernels of their own. The network then has other tasks; programs do not depend on it.
enum class Norms : uint8_t {
  // Deferred where that is faster, as far as is known; in a build, in the form of which more has been tuned.
  kEither = 0,
  kDeferred = 1,
  kApart = 2,
};

const char* NameOf(Norms norms);  // "either", "deferred", "apart"

// "cuda -arch=sm_90 -libs=cudnn,cublas -strict-fp32", "cuda -tf32", "cuda -tf32=1e-3", "cuda -caches=warm",
// "cuda -norms=deferred", "opencl", "cpu -mcpu=native -num-cores=2",
// "cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1".
struct Target {
  TargetKind kind = TargetKind::kCpu;
  std::string arch;               // cuda: "sm_90", without a suffix; empty: that of the first device
  std::string triple;             // cpu: "aarch64-linux-gnu"; empty: the triple of this machine
  std::string mcpu = "native";    // cpu: the processor by the compiler's name for it; never "native" with a triple
  int num_cores = 0;              // cpu: threads; 0: all that this process may use
  std::vector<std::string> libs;  // libraries that may compete with generated kernels
  bool strict_fp32 = false;  // cuda: float32 products by fused multiply-adds only, not on tensor cores (3xTF32, 3xFP16)
  // cuda: largest error of a task's results with which float32 products may be rounded to TensorFloat-32 (10 bits of
  // fraction), relative to the larger of the element and the output's root mean square. 0: not allowed; infinity:
  // limited by the error model (tensor/compare.h) instead.
  double tf32 = 0;
  int device = 0;  // -device=1: which of several GPUs
  // -caches=warm, -caches=flushed: what candidates are timed with. Kernels compute the same whatever it is; part of the
  // target since times of different kinds are not comparable, and so neither are records.
  Caches caches = Caches::kNetwork;
  Norms norms = Norms::kEither;  // cuda: -norms=deferred, -norms=apart

  bool is_gpu() const { return kind != TargetKind::kCpu; }
  // For processors of another architecture than this machine's: kernels can be compiled here, but not run.
  bool is_foreign() const { return !triple.empty(); }
  // The same without what kernels do not depend on: for programs and packages.
  Target ForKernels() const;
  // Canonical text, which Parse reads. It omits attributes with default values and the triple of this machine, so that
  // a record is found however its target was typed.
  std::string ToString() const;
  // InvalidArgument names the unknown kind or attribute and lists the known ones.
  static absl::StatusOr<Target> Parse(const std::string& text);
};

// Properties of a device for the search and the analytic estimate. Sizes in bytes, rates per second.
struct DeviceFacts {
  std::string model;  // "NVIDIA H200", "AMD EPYC ...": part of the key of records
  std::string uuid;
  int num_cores = 1;  // CPU threads, or streaming multiprocessors
  int max_threads_per_block = 1;
  int64_t max_shared_bytes = 0;       // per block, opt-in maximum
  int64_t shared_bytes_per_core = 0;  // per multiprocessor
  int registers_per_core = 65536;     // 32-bit, per multiprocessor
  int max_registers_per_thread = 255;
  int max_threads_per_core = 2048;
  int warp_size = 1;
  int max_cluster = 1;    // most blocks per cluster, also where clusters are emulated; 1: no clusters
  int vector_bytes = 16;  // widest vector: 64 with AVX-512, 16 for a GPU load
  int num_vector_registers = 16;
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 0;
  double clock_hz = 2e9;
  double flops = 1e11;      // peak fp32 of the whole device
  double bandwidth = 2e10;  // device memory, bytes per second
  double l2_bandwidth = 1e11;
  double launch_seconds = 1e-6;  // duration of an empty kernel
  std::string arch;              // "sm_90", "x86-64"
  std::string driver;            // driver or runtime version, for records
};

// 90 for "sm_90" and "sm_90a"; 0 if `arch` is not a CUDA architecture.
int CudaArchNumber(const std::string& arch);

// Facts without access to a device: for cpu those of this machine, for cuda those of a GPU of the architecture (sm_70
// to sm_120; an H200 for sm_90), for opencl those of a generic GPU with 48 KiB of shared memory. compiler/runtime reads
// the facts of real devices.
DeviceFacts DefaultFacts(const Target& target);

}  // namespace diapason
