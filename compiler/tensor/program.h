// A Program: compiled kernels of one task, as a worker's builder makes it and a runner, or a package, loads it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/dtype.h"
#include "compiler/tensor/library_call.h"
#include "compiler/tensor/target.h"
#include "compiler/tensor/tensor_box.h"

namespace diapason {

enum class BufferRole : uint8_t {
  kInput = 1,     // bound by the caller at each run
  kConstant = 2,  // weights: bound once
  // made from constants by the prologue kernels, once; may be kept instead of the constants it came from
  kPrepared = 3,
  kWorkspace = 4,  // scratch between the kernels of one run
  kOutput = 5,
};

struct ProgramBuffer {
  std::string name;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  BufferRole role = BufferRole::kInput;
  int stage = -1;  // id of the placeholder or output stage of the task's own dag; -1 for prepared and workspace
  // Integer inputs: the range in which random contents are valid.
  int64_t valid_min = 0, valid_max = 0;

  int64_t bytes() const { return elements * BytesOf(dtype); }
};

// cuda: up to here shared memory is static; above, all of it is dynamic and needs the device's opt-in.
inline constexpr int64_t kMaxStaticSharedBytes = 48 << 10;
// What kernels may assume of the start of every buffer that they are given, in bytes.
inline constexpr int64_t kParameterAlignment = 64;
// Blocks that a GPU launches along x; launches hold no number that is larger.
inline constexpr int64_t kMaxGridBlocks = (int64_t{1} << 31) - 1;

struct Kernel {
  std::string name;                       // symbol in the binary
  std::vector<int> args;                  // indices into Program::buffers, in order of the parameters
  std::array<int64_t, 3> grid{1, 1, 1};   // blocks; cpu: grid[0] iterations of the parallel loop, split over threads
  std::array<int64_t, 3> block{1, 1, 1};  // threads of a block; cpu: 1
  int64_t shared_bytes = 0;               // static and dynamic together (kMaxStaticSharedBytes)
  // cuda: may start before the kernel in front has ended; every thread of it waits for that itself
  bool overlap = false;
  int cluster = 1;  // blocks of a thread-block cluster along x (cuda)
  // cuda: tensor maps (CUtensorMap), which follow the addresses of `args` as parameters, in order.
  struct TensorMap {
    int arg = 0;            // index into `args`: the buffer that the tensor is in
    int element_bytes = 0;  // of the buffer's elements
    TensorBox box;
    bool operator==(const TensorMap&) const = default;
  };
  std::vector<TensorMap> tensor_maps;
  // Not null: no function of the binary but a call of a library, with `args` in order of LibraryCall::Operands; the
  // other fields are then of no meaning. Shared: kernels are copied into every launch.
  std::shared_ptr<const LibraryCall> library;
  // Calls of libraries are the same where they are one object.
  bool operator==(const Kernel&) const = default;
};

// Whether a launch on a GPU can hold the kernel's grid and block; the driver knows the device's own limits.
// FailedPrecondition names the kernel and the number.
absl::Status CheckLaunch(const Kernel& kernel);

struct Program;
// Whether a tensor map of a kernel of the program is one of its buffer. The numbers may come from a peer; those of
// Kernel::args must be valid.
bool FitsTensorMap(const Program& program, const Kernel& kernel, const Kernel::TensorMap& map);

// Calling convention of the kernels:
//   cpu     extern "C" void name(void* const* args, int64_t begin, int64_t end): iterations [begin, end) of grid[0].
//           Safe to call from several threads on disjoint ranges.
//   opencl  __kernel void name(__global T* arg0, ...), work-group size `block`, global size grid * block.
//   cuda    extern "C" __global__ void name(T* arg0, ..., const __grid_constant__ CUtensorMap map0, ...); shared memory
//           above kMaxStaticSharedBytes is dynamic (`shared_bytes`).
struct Program {
  Target target;
  std::vector<ProgramBuffer> buffers;
  std::vector<Kernel> prologue;  // run once, in order
  std::vector<Kernel> kernels;   // run in order, each after the one before has finished
  std::string source;            // C, OpenCL C or CUDA C
  std::string binary;            // shared object, OpenCL source (built by the runtime), cubin
  std::string compiler;          // version text, for records
  // Read from the compiler's report where it gives one (cuda), per kernel in order of `kernels`; else empty.
  std::vector<int> registers, spill_bytes;
  std::vector<bool> serialized;  // products by warpgroups that ptxas makes wait for each other; not in bytes

  // The libraries that its kernels call, each once, in order of their numbers.
  std::vector<Library> Libraries() const;
};

// As bytes, for builder -> runner and packages. Parse: DataLoss on anything that is not a program of this version.
std::string SerializeProgram(const Program& program);
absl::StatusOr<Program> ParseProgram(const std::string& bytes);

}  // namespace diapason
