// What a runner process does with one program: load it, run it on random inputs, time it, compare it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/runtime/buffer_pool.h"
#include "compiler/runtime/cold_copies.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/outcome.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"
#include "worker/process/device_memory.h"
#include "worker/process/in_place.h"
#include "worker/process/warm_shares.h"

namespace diapason {

namespace v1 {
class RunJob;
class RunReply;
}  // namespace v1

// What no implementation of a program can do without: operations in units of a device's float32 peak
// (DeviceFacts::flops), and bytes in units of its l2_bandwidth. `matrix_units`: of the device, an NVIDIA one.
struct LeastWork {
  double operations = 0, bytes = 0;
  // On a device of these facts; 0: not known.
  double Seconds(double flops, double l2_bandwidth) const;
};
LeastWork LeastWorkOf(const ComputeDag& dag, bool matrix_units);
// What a device's refusal means for a candidate, by the contract of Device and Plan.
ErrorKind ErrorKindOfDevice(const absl::Status& status);
// Whether the device is of no more use: after a kernel's fault, and after one of its own.
bool DeviceIsLost(const absl::Status& status);

// Refuses times that cannot be: a kernel that did nothing, a clock that did not move. What the device cannot be faster
// than is a bound for every algorithm: the dag's operations over the largest saving of one (LargestSaving) at three
// times the peak, on NVIDIA devices that of matrix units; and the stores of the outputs at eight times the bandwidth of
// the L2 cache. Returns why, or an empty text.
std::string ImpossibleTiming(const Timing& timing, const ComputeDag& dag, const DeviceFacts& facts);

// Measures programs on one device, one at a time. Each candidate gets its own fresh copy of the inputs.
class CandidateRunner {
 public:
  // Called when a stage begins. `quiet`: the caller should return only when nothing disturbs a timing.
  using StageBegins = std::function<void(MeasureStage stage, bool quiet)>;

  // `compile` makes the kernels around programs that start early (worker/process/in_place.h); without it such programs
  // are refused.
  explicit CandidateRunner(Device& device, SourceCompiler compile = nullptr);

  // Never fails: what goes wrong is in the reply. `device_lost` is set after a fault that leaves the device unusable.
  v1::RunReply Run(const v1::RunJob& job, const StageBegins& stage_begins);

 private:
  class Job;

  // Where memory is short: what is there for other candidates.
  void FreeWhatIsKept();

  Device& device_;
  LazyInPlace in_place_;
  BufferPool pool_;
  SpareBuffers spare_buffers_;
  WarmShares warm_shares_;
  References references_;
  std::vector<Array> scratch_;  // outputs of the last candidate: memory that is there already
};

}  // namespace diapason
