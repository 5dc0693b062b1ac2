// A package on a device: loading, running and timing it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/build/package_format.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/program.h"

namespace diapason {

// All of a package, in memory.
struct PackageContents {
  PackageManifest manifest;
  std::string weights;            // as weights.bin
  std::vector<Program> programs;  // by task
  std::vector<ComputeDag> dags;   // by task
};

// The files of a package, or what would be in them. Nothing here needs a device.
class Package {
 public:
  // NotFound when `dir` is no package; else as ManifestFromJson.
  static absl::StatusOr<Package> Open(const std::string& dir);
  // One that is on no disk; `name` stands for its folder in messages. The contents are not checked against each other.
  static Package InMemory(std::string name, std::shared_ptr<const PackageContents> contents);

  const std::string& dir() const { return dir_; }
  const PackageManifest& manifest() const { return manifest_; }

  // Each reads from disk, unless the package is in memory. DataLoss for a file that is not what the manifest says; NotFound for a missing one.
  absl::StatusOr<std::string> ReadWeights() const;
  absl::StatusOr<Program> ReadProgram(int task) const;
  absl::StatusOr<ComputeDag> ReadDag(int task) const;

 private:
  Package(std::string dir, PackageManifest manifest);
  std::string dir_;
  PackageManifest manifest_;
  std::shared_ptr<const PackageContents> contents_;  // null: on disk
};

// Random values for every input, as the measuring of tasks draws them (runtime/fill.h). Keys are names.
std::map<std::string, Array> RandomInputs(const PackageManifest& manifest, uint64_t seed);

// Unavailable when a library that the package calls is not here, as `check` says of each; the sentence names the package, the
// library and the mend.
absl::Status CheckPackageLibraries(const Package& package, const std::function<absl::Status(Library)>& check);

// A package loaded on a device. One thread at a time.
class PackageRunner {
 public:
  // Loads on the device of the package's target, or on `device`, which is then the caller's and outlives the runner.
  // Prologues are run here. Unavailable when there is no such device here, or a library is missing; FailedPrecondition when the device here is
  // not the one that the package was built for (architecture, vector width); DataLoss for damaged files;
  // ResourceExhausted when memory is out.
  static absl::StatusOr<std::unique_ptr<PackageRunner>> Load(const std::string& dir, Device* device = nullptr);
  // `keep_other_plan`: for UseOtherPlan.
  static absl::StatusOr<std::unique_ptr<PackageRunner>> Load(Package package, Device* device = nullptr,
                                                             bool keep_other_plan = false);
  ~PackageRunner();

  const Package& package() const { return package_; }
  const PackageManifest& manifest() const { return package_.manifest(); }
  Device& device() const { return *device_; }

  // Inputs start as zeros. InvalidArgument names an input that does not exist, or whose type or shape differs.
  absl::Status SetInput(const std::string& name, const Array& value);
  // InvalidArgument names inputs that are missing, as well.
  absl::Status SetInputs(const std::map<std::string, Array>& values);
  // Fills the memory of intermediate tensors with 0xff bytes, NaN for floats: what a run reads without having written it shows.
  absl::Status Poison();
  // One run of the network with the inputs set. Aborted for a fault of a kernel; the runner is then of no more use on
  // cuda.
  absl::Status Run();
  // So many of them back to back, without waiting in between. REQUIRES: times >= 1.
  absl::Status RunTimes(int64_t times);
  // The outputs of the last run, in order of the manifest.
  absl::StatusOr<std::vector<Array>> Outputs();
  // Latency of one run: seconds of device time with inputs in place, on cuda one graph. Outputs stay those of a run.
  absl::StatusOr<Timing> Bench(const TimingOptions& options);
  // Paths on which kernels that do not depend on each other run side by side: where the device can and that was measured to be faster
  // while loading. 1: in order.
  int paths() const { return plan_->paths(); }
  // Where there is a plan in order and one with paths, which another load may find the faster: takes the one that is not in use. False when there
  // is no other, or none was kept.
  bool UseOtherPlan();

 private:
  class Loader;
  PackageRunner(Package package, std::unique_ptr<Device> owned, Device* device);

  // In order of construction: each may refer to those before it.
  const Package package_;
  const std::unique_ptr<Device> owned_device_;
  Device* const device_;
  std::unique_ptr<DeviceBuffer> arena_;
  std::vector<std::unique_ptr<DeviceBuffer>> tensors_;  // by position; null for a constant that only prologues read
  std::vector<std::unique_ptr<DeviceBuffer>> scratch_;  // views of workspaces
  std::vector<std::unique_ptr<Executable>> steps_;
  std::unique_ptr<Plan> plan_, other_plan_;
};

}  // namespace diapason
