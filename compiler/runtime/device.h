// Devices: memory, modules, launches and timing for cpu, opencl and cuda behind one interface.
//
// Libraries (libcuda, libOpenCL) are opened with dlopen when a device of the kind is first asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Memory of a device. Freed with the object; must not outlive its Device.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual int64_t bytes() const = 0;
};

// A loaded binary. Must not outlive its Device.
class Module {
 public:
  virtual ~Module() = default;
};

// One kernel launch with its arguments bound.
// The part of a tensor that a kernel writes where others write the rest: parts of one tensor (not 0) with other offsets
// have no element in common, though the addresses between their first and last may overlap.
struct WrittenPart {
  int tensor = 0;
  int64_t offset = 0;
  bool IsApartFrom(const WrittenPart& other) const {
    return tensor != 0 && tensor == other.tensor && offset != other.offset;
  }
};

struct Launch {
  const Module* module = nullptr;
  Kernel kernel;
  std::vector<DeviceBuffer*> args;   // in order of the kernel's parameters
  std::vector<bool> writes{};        // by argument: the kernel may write it. Empty: it may write all of them
  std::vector<WrittenPart> parts{};  // by argument: of what it writes. Empty: whole buffers
};

// Memory of somebody else's in the place of a buffer.
struct Redirection {
  const DeviceBuffer* buffer = nullptr;
  void* address = nullptr;  // where there are as many bytes, aligned to kParameterAlignment
};

// A sequence of launches made ready to be repeated: a CUDA graph; a list for the others. Each launch sees the writes of
// the ones before. Its modules, buffers and device must outlive it.
class Plan {
 public:
  virtual ~Plan() = default;
  // Runs once and waits. Aborted: a kernel's fault; Unknown, of any call: the device's. Unusable after both (cuda).
  virtual absl::Status Run() = 0;
  // Runs `times` times back to back and returns the seconds between start and end, by events on cuda, a steady clock on
  // cpu and opencl (with the queue finished).
  virtual absl::StatusOr<double> Time(int64_t times) = 0;
  // Runs once behind what `stream` holds: on cuda a stream (CUstream) of the GPU's primary context, and returns without
  // waiting; other devices have no streams, and run as Run does.
  virtual absl::Status Enqueue(void* stream) { return Run(); }
  // Whether Redirect can put a buffer elsewhere: a launch has it as an argument, and none of those is a call of a
  // library, which may have made something of the address when it was prepared. False on opencl, and on cuda where the
  // driver is too old.
  virtual bool CanRedirect(const DeviceBuffer& buffer) const { return false; }
  // From the next run on, launches that have one of these buffers as an argument get the address in its place, until
  // another call gives them another one; the buffer's own address (Device::AddressOf) puts it back. Runs that were
  // enqueued before keep what they have. Only launches with a new address cost anything (cuda: below a microsecond
  // each). An argument counts as the buffer that it was given as: views of the same memory stay where they are. Where
  // it fails, some launches have the new addresses and others the old ones; another call, with any addresses, makes up
  // for it. REQUIRES: CanRedirect of each of them; on cpu, memory that can be read behind its end as Allocate says.
  virtual absl::Status Redirect(absl::Span<const Redirection> redirections) {
    return absl::FailedPreconditionError("launches of this device cannot be given other memory");
  }
  // Paths on which launches may run side by side; 1: all run in order.
  virtual int paths() const { return 1; }
  // Bytes that a run asks the cache for ahead of the launches that read them (PlanOptions::prefetch).
  virtual int64_t prefetched_bytes() const { return 0; }
};

// The time of each launch of a sequence, taken where it stands: behind the launches before it, with the caches as they
// leave them. Launches run in order, none beside another and none before the one in front has ended. Its modules,
// buffers and device must outlive it.
class LaunchTimer {
 public:
  virtual ~LaunchTimer() = default;
  // Runs the sequence once and gives the seconds of each launch, in order. What taking the time costs is subtracted
  // where it is known; none is below 0. Errors as Plan::Run.
  virtual absl::StatusOr<std::vector<double>> Run() = 0;
};

// How launches of a plan may run other than in order; results are the same.
struct PlanOptions {
  // Launches that neither write what the other uses may run side by side (cuda: parallel paths of the graph; not where
  // libraries are called).
  bool parallel = false;
  // What launches read and none writes (weights) is brought to the L2 cache ahead of them, if it does not fit there as
  // a whole (cuda, sm_90 and later; prefetches.h).
  bool prefetch = false;
};

class Device {
 public:
  static constexpr int64_t kPadding = 64;  // bytes that can be read behind the end of a buffer

  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;
  virtual TargetKind kind() const = 0;
  // ResourceExhausted when memory is out. Start aligned to 256 bytes; padded by kPadding readable bytes at the end,
  // which kernels for cpu may read: their vectors go beyond the last element. Kernels for cuda read and write elements
  // of their buffers alone. Contents undefined.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) = 0;
  // The same with all bytes 0. On cpu, memory that nobody writes to takes none: a package whose runs get their inputs
  // in memory of the caller's does not use its own.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateZeros(int64_t bytes);
  // Part of a buffer as a buffer of its own; `of` must outlive it and be no view itself. `offset` is a multiple of 512
  // bytes. Views at offset 0 may overlap each other, others where views_may_overlap: order of use is then the caller's
  // affair.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) = 0;
  virtual bool views_may_overlap() const { return true; }
  virtual absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) = 0;
  virtual absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) = 0;
  // Between two buffers of the device; by way of the host, unless a device knows better.
  virtual absl::Status Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes);
  // The same behind what `stream` holds, without waiting for it, as Plan::Enqueue.
  virtual absl::Status CopyOn(void* stream, DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
    return Copy(to, from, bytes);
  }
  // Where the buffer lies: an address of the host (cpu) or of the GPU (cuda); null where buffers have none (opencl).
  virtual void* AddressOf(const DeviceBuffer& buffer) const { return nullptr; }
  // Memory of somebody else's as a buffer, to copy from and to; it must outlive the buffer. Null where AddressOf gives
  // none.
  virtual std::unique_ptr<DeviceBuffer> Wrap(void* address, int64_t bytes) { return nullptr; }
  // Every byte set to `value` (0xff makes NaNs: poisoned outputs).
  virtual absl::Status Fill(DeviceBuffer& to, uint8_t value) = 0;
  // InvalidArgument for a binary that does not load (opencl: the compiler's log); FailedPrecondition for one made for
  // another architecture.
  virtual absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) = 0;
  // InvalidArgument when a kernel is not in its module; FailedPrecondition when the driver refuses a launch (threads,
  // registers, shared memory, grid). opencl refuses when the plan first runs.
  virtual absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) = 0;
  // The same with options, which devices other than cuda ignore; Plan::paths and prefetched_bytes say what came of
  // them.
  virtual absl::StatusOr<std::unique_ptr<Plan>> MakePlanWith(std::vector<Launch> launches, const PlanOptions& options) {
    return MakePlan(std::move(launches));
  }
  // For profiles. Errors as MakePlan; FailedPrecondition where the driver cannot tell times.
  virtual absl::StatusOr<std::unique_ptr<LaunchTimer>> MakeLaunchTimer(std::vector<Launch> launches) {
    return absl::FailedPreconditionError("this device cannot tell the time of single kernels");
  }
  // Writes through a scratch buffer larger than the last-level cache, so that the next run starts cold.
  virtual absl::Status FlushCache() = 0;
  // Current clocks in MHz for records (cuda: SM and memory through NVML if present; cpu: from sysfs or /proc/cpuinfo);
  // 0 if unknown.
  struct Clocks {
    double core_mhz = 0, memory_mhz = 0;
  };
  virtual Clocks clocks() const = 0;
};

// Opens the device of a target. Unavailable, with what is missing and how to fix it, where there is none.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const Target& target);
// All devices of this machine, with the target that names each: cpu always, then opencl and cuda where present.
struct DeviceListing {
  std::string target;
  DeviceFacts facts;
};
std::vector<DeviceListing> ListDevices();
// Facts of the target's device here, or DefaultFacts(target) where there is none.
DeviceFacts ResolveFacts(const Target& target);

}  // namespace diapason
