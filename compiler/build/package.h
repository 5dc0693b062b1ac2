// A package on a device: loading, running and timing it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/build/arena.h"
#include "compiler/build/loaded_parts.h"
#include "compiler/build/package_archive.h"
#include "compiler/build/package_format.h"
#include "compiler/build/port_memory.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/program.h"

namespace diapason {

// All of a package, in memory.
struct PackageContents {
  PackageManifest manifest;
  std::shared_ptr<const std::string> weights;  // as weights.bin; there may be more behind those of the manifest
  std::vector<Program> programs;               // by task
  std::vector<std::string> dags;               // by task, as bytes (tensor/serialize.h)
};

// Bytes, and what keeps them in memory.
struct PackageBytes {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// The files of a package, or what would be in them. Nothing here needs a device.
class Package {
 public:
  // A folder, or a file (package_archive.h), which is mapped into memory as the weights of a folder are: neither may be
  // changed while it is in use, and replacing it is harmless. With its first plan. NotFound when there is
  // no package; DataLoss for a file that is none; else as PlansFromJson.
  static absl::StatusOr<Package> Open(const std::string& path);
  // The bytes of such a file, which must outlive the package and its copies; `name` stands for its path in messages.
  static absl::StatusOr<Package> FromMemory(std::string_view bytes, const std::string& name);
  // The same files with other plans. REQUIRES: as many, and of the same tasks.
  Package WithPlans(std::vector<PackageManifest> plans) const;
  // One that is on no disk; `name` stands for its folder in messages. The contents are not checked against each other.
  static Package InMemory(std::string name, std::shared_ptr<const PackageContents> contents);

  // The folder or file.
  const std::string& dir() const { return dir_; }
  // One of its files, as messages name it.
  std::string PathOf(const std::string& file) const;
  // Its plans; there is at least one.
  const std::vector<PackageManifest>& plans() const { return *plans_; }
  // The same package with another plan. REQUIRES: 0 <= plan < plans().size().
  Package WithPlan(int plan) const;
  int plan() const { return plan_; }
  // The plan in use, which what follows is about.
  const PackageManifest& manifest() const { return (*plans_)[plan_]; }

  // Each reads from disk, unless the package is in memory. DataLoss for a file that is not what the manifest says;
  // NotFound for a missing one.
  absl::StatusOr<PackageBytes> ReadWeights() const;
  absl::StatusOr<Program> ReadProgram(int task) const;
  // For people, and for exports: it is not checked against the manifest. As ReadProgram where that is the binary.
  absl::StatusOr<std::string> ReadSource(int task) const;
  // As bytes (tensor/serialize.h): parsing them takes what this library does without (open_package.h).
  absl::StatusOr<std::string> ReadDag(int task) const;

 private:
  Package(std::string dir, std::vector<PackageManifest> plans);
  static absl::StatusOr<Package> FromArchive(std::shared_ptr<const PackageArchive> archive);
  absl::StatusOr<std::string> ReadText(const std::string& file) const;

  std::string dir_;
  std::shared_ptr<const PackageArchive> archive_;              // null: a folder, or in memory
  std::shared_ptr<const std::vector<PackageManifest>> plans_;  // shared by copies
  int plan_ = 0;
  std::shared_ptr<const PackageContents> contents_;  // null: on disk
};

// Unavailable when a library that the package calls is not here, as `check` says of each; the sentence names the
// package, the library and how to fix it.
absl::Status CheckPackageLibraries(const Package& package, const std::function<absl::Status(Library)>& check);

// The device of the package's target. Unavailable when there is none here.
absl::StatusOr<std::unique_ptr<Device>> OpenDeviceOf(const Package& package);

// What runners of one plan have in common on a device: constants, what is prepared from them, kernels. Must not outlive
// the device.
struct PlanParts {
  struct Step {
    Program program;  // without its binary
    std::shared_ptr<const Module> module;
    std::vector<std::shared_ptr<DeviceBuffer>>
        prepared;  // by buffer of the program; null for those that are not prepared
  };
  std::vector<std::shared_ptr<DeviceBuffer>>
      constants;  // by tensor; null for others, and for those that only prologues read
  std::vector<Step> steps;
  PlanOptions options;  // those that were measured to be faster
};

// One plan of a package, loaded on a device. One thread at a time.
class PackageRunner {
 public:
  // Loads on the device of the package's target, or on `device`, which is then the caller's and outlives the runner.
  // Prologues are run here. Unavailable when there is no such device here, or a library is missing; FailedPrecondition
  // when the device here is not the one that the package was built for (architecture, vector width); DataLoss for
  // damaged files; ResourceExhausted when memory is out.
  static absl::StatusOr<std::unique_ptr<PackageRunner>> Load(const std::string& dir, Device* device = nullptr);
  // `keep_other_plan`: for UseOtherPlan. `parts`: those that other runners on the device hold of packages with the
  // same weights, and this one from then on.
  static absl::StatusOr<std::unique_ptr<PackageRunner>> Load(Package package, Device* device = nullptr,
                                                             bool keep_other_plan = false,
                                                             LoadedParts* parts = nullptr);
  // Another runner of the plan whose parts these are, which reads no files: it has memory of its own for inputs and
  // intermediate tensors. It may run at the same time as others. `device`: of the same GPU or processor as that of the
  // parts; outlives it. ResourceExhausted when memory is out.
  static absl::StatusOr<std::unique_ptr<PackageRunner>> FromParts(Package package, Device* device,
                                                                  const PlanParts& parts);
  ~PackageRunner();

  PlanParts Parts() const;
  const Package& package() const { return package_; }
  const PackageManifest& manifest() const { return package_.manifest(); }
  Device& device() const { return *device_; }

  // Inputs start as zeros. InvalidArgument names an input that does not exist, or whose type or shape differs.
  absl::Status SetInput(const std::string& name, const Array& value);
  // InvalidArgument names inputs that are missing, as well.
  absl::Status SetInputs(const std::map<std::string, Array>& values);
  // Fills the memory of intermediate tensors with 0xff bytes, NaN for floats: what a run reads without having written
  // it shows.
  absl::Status Poison();
  // The runner's own memory of an input or output, by position in the manifest; outputs hold their values after a run,
  // unless that was one of Enqueue with other memory for them. One buffer may be several of them.
  DeviceBuffer& input(int index) { return *tensors_[manifest().inputs[index].tensor]; }
  const DeviceBuffer& output(int index) const { return *tensors_[manifest().outputs[index].tensor]; }
  // One run of the network with the inputs set, in the runner's own memory. Aborted for a fault of a kernel; the runner
  // is then of no more use on cuda.
  absl::Status Run();
  // One run behind what `stream` holds (Plan::Enqueue), with memory of the caller's for the inputs and outputs that are
  // not null; an empty list has nulls alone. It is read and written in place, or copied in the stream where launches
  // cannot use it (port_memory.h): results are the same, also where an output overlaps an input, or lies in the
  // runner's own memory. What own memory holds of such inputs and outputs afterwards is not said. Nothing is done for
  // addresses that are those of the run before (cuda: others cost below a microsecond for each kernel that uses them).
  // The memory must stay until the run has finished; on cpu, it is such as Device::Allocate gives. Runs of other kinds
  // use the runner's own again. REQUIRES: empty lists, or one address for each input or output; not opencl, unless both
  // are empty.
  absl::Status Enqueue(void* stream, absl::Span<void* const> inputs = {}, absl::Span<void* const> outputs = {});
  // Which inputs, then outputs, the last Enqueue with memory of the caller's used in place. For tests.
  std::vector<bool> UsedInPlace() const;
  // So many of them back to back, without waiting in between. REQUIRES: times >= 1.
  absl::Status RunTimes(int64_t times);
  // The outputs of the last run in the runner's own memory, in order of the manifest.
  absl::StatusOr<std::vector<Array>> Outputs();
  // Latency of one run: seconds of device time with inputs in place, on cuda one graph. Outputs stay those of a run.
  absl::StatusOr<Timing> Bench(const TimingOptions& options);
  // The kernels of a run in order: those of each step of the manifest behind each other.
  std::vector<Launch> Launches() const;
  // Kernels of a step's program.
  int KernelsOf(int step) const { return static_cast<int>(steps_[step]->program().kernels.size()); }
  // Paths on which kernels that do not depend on each other run side by side: where the device can and that was
  // measured to be faster while loading. 1: in order.
  int paths() const { return plan_->paths(); }
  // Bytes that a run brings to the cache ahead of the kernels that read them, where that was measured to be faster.
  int64_t prefetched_bytes() const { return plan_->prefetched_bytes(); }
  // Where there is a plan in order and one with paths, which another load may find the faster: takes the one that is
  // not in use. False when there is no other, or none was kept, and after an error of the device.
  bool UseOtherPlan();

 private:
  class Loader;
  PackageRunner(Package package, std::unique_ptr<Device> owned, Device* device);
  absl::Status UseOwnMemory();

  // In order of construction: each may refer to those before it.
  const Package package_;
  const std::unique_ptr<Device> owned_device_;
  Device* const device_;
  Arena arena_;  // parts: tensors placed there, in order, then workspaces of the steps
  std::vector<std::shared_ptr<DeviceBuffer>> tensors_;  // by position; null for a constant that only prologues read
  std::vector<std::unique_ptr<Executable>> steps_;
  std::unique_ptr<Plan> plan_, other_plan_;
  std::unique_ptr<PortMemory> ports_;  // of plan_; null: no run has had memory of a caller's
};

}  // namespace diapason
