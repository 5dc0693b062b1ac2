// A program on a device: its module loaded and its buffers bound. What a runner measures and a package strings
// together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// Use: Create, Bind the buffers that live elsewhere, Allocate the rest, fill inputs and constants, RunPrologue, Plan.
// The device outlives it. One thread at a time.
class Executable {
 public:
  // Loads the module, or shares `module`, which another executable of the same program loaded. InvalidArgument for a
  // program whose kernels name buffers that it does not have; else as Device::Load.
  static absl::StatusOr<std::unique_ptr<Executable>> Create(Device& device, Program program,
                                                            std::shared_ptr<const Module> module = nullptr);

  const Program& program() const { return program_; }
  Device& device() const { return device_; }
  const std::shared_ptr<const Module>& module() const { return module_; }

  // Uses `buffer`, kept by the caller, for program buffer `index`. REQUIRES: large enough; no plan made yet.
  void Bind(int index, DeviceBuffer* buffer);
  // The same of a buffer that is kept as long as this is.
  void Share(int index, std::shared_ptr<DeviceBuffer> buffer);
  // By buffer: whether kernels of a run have it as an argument; `for_prologue`: any buffer.
  std::vector<bool> Wanted(bool for_prologue) const;
  // Allocates every buffer not bound; without `for_prologue`, those that kernels of a run use. ResourceExhausted when
  // memory is out.
  absl::Status AllocateRest(bool for_prologue = true);
  // Null for a buffer that is neither bound nor allocated.
  DeviceBuffer* buffer(int index) const { return buffers_[index]; }
  // One that AllocateRest or Share gave it; null for others.
  const std::shared_ptr<DeviceBuffer>& kept(int index) const { return kept_[index]; }
  // What RunPrologue made, by buffer; null for the others.
  std::vector<std::shared_ptr<DeviceBuffer>> Prepared() const;
  // Uses what another executable of the program prepared from the same constants, as Prepared gave it, in place of
  // RunPrologue.
  void SharePrepared(const std::vector<std::shared_ptr<DeviceBuffer>>& prepared);
  // Indices of the buffers with a role, in order.
  std::vector<int> BuffersOf(BufferRole role) const;
  // The buffer that stands for a placeholder or output of the task's dag; -1 if there is none.
  int BufferOfStage(int stage) const;

  // Makes the prepared buffers from the constants. Does nothing for a program without prologue. Once, after the
  // constants are filled. REQUIRES: every buffer bound or allocated.
  absl::Status RunPrologue();
  // The kernels of one run with their arguments; to be put into a plan together with those of other executables.
  std::vector<Launch> Launches() const;
  // A plan of `copies` runs, one after the other, each behind the launches `before`.
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(int64_t copies = 1, const std::vector<Launch>& before = {});

 private:
  Executable(Device& device, Program program, std::shared_ptr<const Module> module);
  std::vector<Launch> Bound(const std::vector<Kernel>& kernels, bool prologue) const;

  Device& device_;
  const Program program_;
  const std::shared_ptr<const Module> module_;
  std::vector<DeviceBuffer*> buffers_;               // by program index
  std::vector<std::shared_ptr<DeviceBuffer>> kept_;  // by program index; null: somebody else keeps it
};

}  // namespace diapason
