// A package in memory, as libdiapason_runtime shares it between contexts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "compiler/build/package.h"
#include "compiler/runtime/device.h"

namespace diapason {

// An input or output of all plans, with what a C caller wants to point to.
struct PortFacts {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // -1 where the extent depends on the plan or on sizes
  std::vector<const char*>
      symbols;  // by axis: a name out of the package; null where no symbol is known to give the extent
};

// Safe from any thread. Kept alive by the contexts that were made of it.
class LoadedPackage {
 public:
  // Opens the device (a GPU by its number, if `gpu` is not negative), and loads the first plan. Errors as
  // PackageRunner::Load.
  static absl::StatusOr<std::shared_ptr<LoadedPackage>> Load(Package package, int gpu);

  const Package& package() const { return package_; }
  const std::string& target() const { return target_text_; }
  TargetKind kind() const { return device_->kind(); }
  int gpu() const { return target_.device; }
  Device& device() { return *device_; }
  const std::vector<std::string>& symbols() const { return symbols_; }
  const std::vector<PortFacts>& inputs() const { return inputs_; }
  const std::vector<PortFacts>& outputs() const { return outputs_; }

  // A device for a context: the same processor or GPU with `threads` (cpu; 0: as many as the package was built for) or
  // a stream of its own. Null: contexts use the package's, one at a time (opencl, whose buffers belong to it).
  absl::StatusOr<std::unique_ptr<Device>> OpenForContext(int threads) const;
  // A plan's, loaded when they are first asked for. They live as long as this.
  absl::StatusOr<const PlanParts*> Parts(int plan);
  // To be held by who uses the package's own device.
  Mutex& device_mutex() ABSL_LOCK_RETURNED(device_mutex_) { return device_mutex_; }

 private:
  LoadedPackage(Package package, Target target, std::unique_ptr<Device> device);

  const Package package_;
  const Target target_;
  const std::string target_text_;
  std::vector<std::string> symbols_;
  std::vector<PortFacts> inputs_, outputs_;
  const std::unique_ptr<Device> device_;

  Mutex device_mutex_;  // held by who uses the device, too
  LoadedParts loaded_ ABSL_GUARDED_BY(device_mutex_);
  std::vector<std::optional<PlanParts>> parts_ ABSL_GUARDED_BY(device_mutex_);  // by plan
};

}  // namespace diapason
