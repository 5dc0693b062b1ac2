// Running a loaded package: a context of libdiapason_runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/build/package.h"
#include "compiler/graph/dims.h"
#include "compiler/runtime/device.h"
#include "runtime/loaded_package.h"

namespace diapason {

// Memory of a caller; null data: the context's own.
struct CallerBuffer {
  void* data = nullptr;
  size_t bytes = 0;
};

// A tensor with the sizes that are set.
struct ContextTensor {
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  void* data = nullptr;  // on the device; null: none that could be used as it is
};

// One thread at a time. Runs at the same time as other contexts of the package.
class RunContext {
 public:
  // `threads`: as LoadedPackage::OpenForContext takes them.
  static absl::StatusOr<std::unique_ptr<RunContext>> Create(std::shared_ptr<LoadedPackage> package, int threads);

  LoadedPackage& package() { return *package_; }
  // InvalidArgument for a symbol that the package does not have, or a size below 1.
  absl::Status SetSize(const std::string& symbol, int64_t size);
  // All of them, as SizesOfInputs gives them.
  void SetSizes(const SymbolSizes& sizes);
  // Chooses and loads the plan for the sizes set, unless it is there. Errors as ChoosePlan and
  // PackageRunner::FromParts.
  absl::Status Prepare();
  // REQUIRES: Prepare() is OK, and no size was set since.
  const std::vector<ContextTensor>& inputs() const { return inputs_; }
  const std::vector<ContextTensor>& outputs() const { return outputs_; }

  // Runs with buffers of the host, all of them or none, and waits. InvalidArgument names a buffer that does not fit,
  // or an index in an input that is out of range.
  absl::Status Run(absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs);
  // With buffers of the device, behind what `stream` holds; they are used as PackageRunner::Enqueue uses them. An index
  // in an input that is out of range chooses the first or last element.
  absl::Status RunOnStream(void* stream, absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs);

 private:
  RunContext(std::shared_ptr<LoadedPackage> package, std::unique_ptr<Device> owned);
  absl::Status CheckBuffers(absl::Span<const CallerBuffer> buffers, bool inputs) const;
  // Of inputs in memory of the host: the values that may be given.
  absl::Status CheckValues(absl::Span<const CallerBuffer> inputs) const;
  // By tensor: memory of the caller's that kernels of a processor can use as it is; null: what they use is the
  // context's own, and what is given is copied.
  std::vector<void*> SharedMemory(absl::Span<const CallerBuffer> buffers,
                                  const std::vector<ContextTensor>& tensors) const;
  absl::Status RunPadded(absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs);
  absl::Status RunExact(absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs);
  void DescribeTensors(const PackageManifest& plan);

  // In order of construction: each may refer to those before it.
  const std::shared_ptr<LoadedPackage> package_;
  const std::unique_ptr<Device> owned_device_;  // null: the package's is used, with its mutex held
  Device& device_;
  std::vector<std::unique_ptr<PackageRunner>> runners_;  // by plan; null: not used yet
  SymbolSizes sizes_;

  // For the sizes set.
  PackageRunner* runner_ = nullptr;  // null: to be chosen
  bool padded_ = false;
  std::vector<ContextTensor> inputs_, outputs_;
};

}  // namespace diapason
