#include "runtime/run_context.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/mutex.h"
#include "compiler/build/plans.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/program.h"

namespace diapason {
namespace {

int64_t BytesOfShape(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = BytesOf(dtype);
  for (int64_t extent : shape) bytes *= extent;
  return bytes;
}

// Below, a copy takes less time than giving launches another address.
constexpr int64_t kWorthSharing = 16 << 10;

// Whether kernels of a processor may use the memory as they do a device's: it is aligned, and they may read
// Device::kPadding bytes behind its end, which is certain only within its last page.
bool UsableByKernels(const void* data, int64_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data), end = begin + static_cast<uintptr_t>(bytes);
  return bytes >= kWorthSharing && begin % kParameterAlignment == 0 &&
         (end - 1) / page == (end - 1 + Device::kPadding) / page;
}

}  // namespace

RunContext::RunContext(std::shared_ptr<LoadedPackage> package, std::unique_ptr<Device> owned)
    : package_(std::move(package)),
      owned_device_(std::move(owned)),
      device_(owned_device_ != nullptr ? *owned_device_ : package_->device()),
      runners_(package_->package().plans().size()),
      sizes_(package_->package().manifest().sizes) {}

absl::StatusOr<std::unique_ptr<RunContext>> RunContext::Create(std::shared_ptr<LoadedPackage> package, int threads) {
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, package->OpenForContext(threads));
  std::unique_ptr<RunContext> context(new RunContext(std::move(package), std::move(device)));
  RETURN_IF_ERROR(context->Prepare());
  return context;
}

absl::Status RunContext::SetSize(const std::string& symbol, int64_t size) {
  const auto known = sizes_.find(symbol);
  if (known == sizes_.end()) {
    const std::string there = sizes_.empty()
                                  ? std::string("its shapes are fixed")
                                  : absl::StrCat("it has '", absl::StrJoin(package_->symbols(), "', '"), "'");
    return absl::InvalidArgumentError(absl::StrCat("the package has no symbolic dimension '", symbol, "': ", there));
  }
  if (size < 1)
    return absl::InvalidArgumentError(absl::StrCat("'", symbol, "' cannot be ", size, ": give a size of at least 1"));
  if (known->second != size) runner_ = nullptr;
  known->second = size;
  return absl::OkStatus();
}

void RunContext::SetSizes(const SymbolSizes& sizes) {
  if (sizes == sizes_) return;
  sizes_ = sizes;
  runner_ = nullptr;
}

absl::Status RunContext::Prepare() {
  if (runner_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(package_->package(), sizes_));
  std::unique_ptr<PackageRunner>& runner = runners_[choice.plan];
  if (runner == nullptr) {
    ASSIGN_OR_RETURN(const PlanParts* parts, package_->Parts(choice.plan));
    std::optional<MutexLock> lock;
    if (owned_device_ == nullptr) lock.emplace(package_->device_mutex());
    ASSIGN_OR_RETURN(runner, PackageRunner::FromParts(package_->package().WithPlan(choice.plan), &device_, *parts));
  }
  runner_ = runner.get();
  DescribeTensors(runner_->manifest());
  return absl::OkStatus();
}

void RunContext::DescribeTensors(const PackageManifest& plan) {
  padded_ = plan.sizes != sizes_;
  inputs_.clear();
  outputs_.clear();
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PackagePort& port = plan.inputs[i];
    ContextTensor& tensor = inputs_.emplace_back(ContextTensor{port.shape, 0, nullptr});
    for (size_t d = 0; d < port.symbols.size(); ++d)
      if (!port.symbols[d].empty()) tensor.shape[d] = sizes_.at(port.symbols[d]);
    tensor.bytes = BytesOfShape(port.dtype, tensor.shape);
    if (!padded_) tensor.data = device_.AddressOf(runner_->input(static_cast<int>(i)));
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PackagePort& port = plan.outputs[i];
    ContextTensor& tensor = outputs_.emplace_back(ContextTensor{port.shape, 0, nullptr});
    for (const PortGrowth& growth : port.grows) tensor.shape[growth.axis] = sizes_.at(growth.symbol) * growth.block;
    tensor.bytes = BytesOfShape(port.dtype, tensor.shape);
    if (!padded_) tensor.data = device_.AddressOf(runner_->output(static_cast<int>(i)));
  }
}

absl::Status RunContext::CheckBuffers(absl::Span<const CallerBuffer> buffers, bool inputs) const {
  const std::vector<ContextTensor>& tensors = inputs ? inputs_ : outputs_;
  const std::vector<PackagePort>& ports = inputs ? runner_->manifest().inputs : runner_->manifest().outputs;
  const char* const what = inputs ? "input" : "output";
  if (!buffers.empty() && buffers.size() != tensors.size())
    return absl::InvalidArgumentError(
        absl::StrCat(buffers.size(), " ", what, "s were given, and the package has ", tensors.size(),
                     ": give all of them in order, or none to use the context's own memory"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool own = buffers.empty() || buffers[i].data == nullptr;
    if (own ? tensors[i].data != nullptr || tensors[i].bytes == 0
            : static_cast<int64_t>(buffers[i].bytes) == tensors[i].bytes)
      continue;
    const PackagePort port{ports[i].name, ports[i].dtype, tensors[i].shape, -1, 0, 0};
    if (own)
      return absl::InvalidArgumentError(
          absl::StrCat(what, " '", port.name, "' has no memory of the context's own here (",
                       padded_ ? "its sizes are padded" : "OpenCL buffers have no address", "): give a buffer"));
    return absl::InvalidArgumentError(absl::StrCat(what, " '", port.name, "' is ", port.TypeText(), ", ",
                                                   tensors[i].bytes, " bytes, and the buffer has ", buffers[i].bytes));
  }
  return absl::OkStatus();
}

absl::Status RunContext::Run(absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs) {
  RETURN_IF_ERROR(Prepare());
  RETURN_IF_ERROR(CheckBuffers(inputs, true));
  RETURN_IF_ERROR(CheckBuffers(outputs, false));
  std::optional<MutexLock> lock;
  if (owned_device_ == nullptr) lock.emplace(package_->device_mutex());
  return padded_ ? RunPadded(inputs, outputs) : RunExact(inputs, outputs);
}

absl::Status RunContext::CheckValues(absl::Span<const CallerBuffer> inputs) const {
  const std::vector<PackagePort>& ports = runner_->manifest().inputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    const void* values = inputs.empty() ? nullptr : inputs[i].data;
    if (values == nullptr && device_.kind() == TargetKind::kCpu) values = inputs_[i].data;
    if (values == nullptr) continue;
    RETURN_IF_ERROR(ports[i].CheckValues(values, inputs_[i].bytes / static_cast<int64_t>(BytesOf(ports[i].dtype))));
  }
  return absl::OkStatus();
}

std::vector<void*> RunContext::SharedMemory(absl::Span<const CallerBuffer> buffers,
                                            const std::vector<ContextTensor>& tensors) const {
  std::vector<void*> shared(tensors.size(), nullptr);
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].data != tensors[i].data && UsableByKernels(buffers[i].data, tensors[i].bytes))
      shared[i] = buffers[i].data;
  return shared;
}

absl::Status RunContext::RunExact(absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs) {
  RETURN_IF_ERROR(CheckValues(inputs));
  std::vector<void*> read(inputs_.size(), nullptr), written(outputs_.size(), nullptr);
  if (device_.kind() == TargetKind::kCpu) {
    read = SharedMemory(inputs, inputs_);
    written = SharedMemory(outputs, outputs_);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].data != nullptr && inputs[i].data != inputs_[i].data && read[i] == nullptr)
      RETURN_IF_ERROR(device_.CopyIn(runner_->input(static_cast<int>(i)), inputs[i].data, inputs_[i].bytes));
  const auto is_own = [](const void* address) { return address == nullptr; };
  const bool own = std::all_of(read.begin(), read.end(), is_own) && std::all_of(written.begin(), written.end(), is_own);
  RETURN_IF_ERROR(own ? runner_->Run() : runner_->Enqueue(nullptr, read, written));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].data != nullptr && outputs[i].data != outputs_[i].data && written[i] == nullptr)
      RETURN_IF_ERROR(device_.CopyOut(outputs[i].data, runner_->output(static_cast<int>(i)), outputs_[i].bytes));
  return absl::OkStatus();
}

absl::Status RunContext::RunPadded(absl::Span<const CallerBuffer> inputs, absl::Span<const CallerBuffer> outputs) {
  const PackageManifest& plan = runner_->manifest();
  std::map<std::string, Array> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Array& value = values[plan.inputs[i].name] = Array(plan.inputs[i].dtype, inputs_[i].shape);
    if (!value.data.empty()) std::memcpy(value.data.data(), inputs[i].data, value.data.size());
  }
  ASSIGN_OR_RETURN(const auto padded, PadInputs(plan, values));
  RETURN_IF_ERROR(runner_->SetInputs(padded));
  RETURN_IF_ERROR(runner_->Run());
  ASSIGN_OR_RETURN(std::vector<Array> results, runner_->Outputs());
  results = CutOutputs(plan, sizes_, std::move(results));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!results[i].data.empty()) std::memcpy(outputs[i].data, results[i].data.data(), results[i].data.size());
  return absl::OkStatus();
}

absl::Status RunContext::RunOnStream(void* stream, absl::Span<const CallerBuffer> inputs,
                                     absl::Span<const CallerBuffer> outputs) {
  if (device_.kind() == TargetKind::kOpenCl)
    return absl::InvalidArgumentError(
        "a package for opencl has no streams: run it with memory of the host (diapason_run)");
  if (device_.kind() == TargetKind::kCpu) {
    if (stream == nullptr) return Run(inputs, outputs);
    return absl::InvalidArgumentError("a package for cpu has no streams: give a null stream");
  }
  RETURN_IF_ERROR(Prepare());
  if (padded_)
    return absl::InvalidArgumentError(
        absl::StrCat("the inputs have ", SizesText(sizes_), ", and would have to be padded to ",
                     SizesText(runner_->manifest().sizes),
                     ", which is done in memory of the host alone: pad them, or use diapason_run"));
  RETURN_IF_ERROR(CheckBuffers(inputs, true));
  RETURN_IF_ERROR(CheckBuffers(outputs, false));
  const auto addresses = [](absl::Span<const CallerBuffer> buffers) {
    std::vector<void*> data;
    for (const CallerBuffer& buffer : buffers) data.push_back(buffer.data);
    return data;
  };
  return runner_->Enqueue(stream, addresses(inputs), addresses(outputs));
}

}  // namespace diapason
