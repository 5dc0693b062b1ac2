#include "runtime/dlpack.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "compiler/build/plans.h"
#include "compiler/tensor/array.h"

namespace diapason {
namespace {

// DLDeviceType
constexpr int32_t kHost = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;
constexpr uint64_t kReadOnly = 1;  // DLPACK_FLAG_BITMASK_READ_ONLY
constexpr uint32_t kMajor = 1, kMinor = 0;

struct TypeCode {
  DType dtype;
  uint8_t code, bits;  // DLDataTypeCode: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6
};

constexpr TypeCode kTypes[] = {{DType::kFloat32, 2, 32}, {DType::kFloat16, 2, 16}, {DType::kFloat64, 2, 64},
                               {DType::kInt32, 0, 32},   {DType::kInt64, 0, 64},   {DType::kBool, 6, 8},
                               {DType::kInt8, 0, 8},     {DType::kUint8, 1, 8},    {DType::kBfloat16, 4, 16}};

std::optional<DType> TypeOf(const DLDataType& type) {
  for (const TypeCode& known : kTypes)
    if (type.lanes == 1 && type.code == known.code && type.bits == known.bits) return known.dtype;
  return std::nullopt;
}

DLDataType TypeOf(DType dtype) {
  for (const TypeCode& known : kTypes)
    if (known.dtype == dtype) return {known.code, known.bits, 1};
  DIAPASON_CHECK_MSG(false, NameOf(dtype));
}

bool IsHost(const DLDevice& device) { return device.device_type == kHost || device.device_type == kCudaHost; }

bool IsDense(const DLTensor& tensor) {
  // Of no elements, strides say nothing.
  if (tensor.strides == nullptr || std::count(tensor.shape, tensor.shape + tensor.ndim, 0) > 0) return true;
  int64_t dense = 1;
  for (int d = tensor.ndim; d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != dense) return false;
    dense *= tensor.shape[d];
  }
  return true;
}

void* DataOf(const DLTensor& tensor) {
  return tensor.data == nullptr ? nullptr : static_cast<uint8_t*>(tensor.data) + tensor.byte_offset;
}

// What can be said of one tensor alone; `what` names it.
absl::Status CheckTensor(const DLManagedTensorVersioned& managed, const LoadedPackage& package, bool host,
                         const std::string& what) {
  const DLTensor& tensor = managed.dl_tensor;
  if (managed.version.major != kMajor)
    return absl::InvalidArgumentError(absl::StrCat(what, " is a DLPack tensor of version ", managed.version.major, ".",
                                                   managed.version.minor, "; give one of version ", kMajor, ".x"));
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
    return absl::InvalidArgumentError(absl::StrCat(what, " has no shape"));
  for (int d = 0; d < tensor.ndim; ++d)
    if (tensor.shape[d] < 0) return absl::InvalidArgumentError(absl::StrCat(what, " has a negative extent"));
  if (!TypeOf(tensor.dtype).has_value())
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has elements of DLPack type ", tensor.dtype.code, " with ", tensor.dtype.bits, " bits and ",
        tensor.dtype.lanes, tensor.dtype.lanes == 1 ? " lane" : " lanes", ", which no package has"));
  if (!IsDense(tensor))
    return absl::InvalidArgumentError(absl::StrCat(what, " is not dense in row-major order: give a contiguous copy"));
  const bool on_gpu = (tensor.device.device_type == kCuda || tensor.device.device_type == kCudaManaged) &&
                      package.kind() == TargetKind::kCuda && tensor.device.device_id == package.gpu();
  if (host ? IsHost(tensor.device) : on_gpu) return absl::OkStatus();
  const std::string gpu = package.kind() == TargetKind::kCuda
                              ? absl::StrCat("all on the host, or all on CUDA device ", package.gpu())
                              : std::string("on the host");
  return absl::InvalidArgumentError(absl::StrCat(what, " is on DLPack device ", tensor.device.device_type, ":",
                                                 tensor.device.device_id, "; give tensors that are ", gpu));
}

PackagePort PortOf(const std::string& name, const DLTensor& tensor) {
  return {name, *TypeOf(tensor.dtype), {tensor.shape, tensor.shape + tensor.ndim}, -1, 0, 0};
}

absl::Status CheckType(const PackagePort& given, const PackagePort& port, const std::vector<int64_t>& shape,
                       const std::string& what) {
  if (given.dtype == port.dtype && given.shape == shape) return absl::OkStatus();
  PackagePort wanted{port.name, port.dtype, shape, -1, 0, 0};
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", given.TypeText(), "; the package wants ", wanted.TypeText()));
}

// An output that is made here.
struct MadeTensor {
  DLManagedTensorVersioned managed{};
  std::vector<int64_t> shape, strides;
  std::shared_ptr<LoadedPackage> package;  // whose device outlives the buffer
  std::unique_ptr<DeviceBuffer> buffer;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory;  // of the host, in place of the buffer
};

absl::StatusOr<std::unique_ptr<MadeTensor>> Make(const std::shared_ptr<LoadedPackage>& package, bool host,
                                                 const ContextTensor& tensor, DType dtype) {
  auto made = std::make_unique<MadeTensor>();
  made->shape = tensor.shape;
  made->strides.resize(tensor.shape.size());
  int64_t dense = 1;
  for (size_t d = tensor.shape.size(); d-- > 0; dense *= tensor.shape[d]) made->strides[d] = dense;
  DLTensor& out = made->managed.dl_tensor;
  if (host) {
    constexpr size_t kAlignment = 256;  // as DLPack asks for
    made->memory.reset(std::aligned_alloc(kAlignment, (tensor.bytes / kAlignment + 1) * kAlignment));
    if (made->memory == nullptr)
      return absl::ResourceExhaustedError(absl::StrCat("out of memory for an output of ", tensor.bytes, " bytes"));
    out.data = made->memory.get();
    out.device = {kHost, 0};
  } else {
    made->package = package;
    {
      const MutexLock lock(package->device_mutex());
      ASSIGN_OR_RETURN(made->buffer, package->device().Allocate(tensor.bytes));
    }
    out.data = package->device().AddressOf(*made->buffer);
    out.device = {kCuda, package->gpu()};
  }
  out.ndim = static_cast<int32_t>(made->shape.size());
  out.dtype = TypeOf(dtype);
  out.shape = made->shape.data();
  out.strides = made->strides.data();
  made->managed.version = {kMajor, kMinor};
  made->managed.manager_ctx = made.get();
  made->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<MadeTensor*>(self->manager_ctx); };
  return made;
}

// The inputs as buffers, with the sizes of the context set to theirs.
absl::StatusOr<std::vector<CallerBuffer>> TakeInputs(RunContext& context, bool host,
                                                     absl::Span<DLManagedTensorVersioned* const> inputs) {
  const std::vector<PackagePort>& ports = context.package().package().manifest().inputs;
  std::vector<CallerBuffer> buffers;
  std::map<std::string, Array> shapes;  // without data
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = absl::StrCat("input '", ports[i].name, "'");
    const DLTensor& tensor = inputs[i]->dl_tensor;
    RETURN_IF_ERROR(CheckTensor(*inputs[i], context.package(), host, what));
    const PackagePort given = PortOf(ports[i].name, tensor);
    if (ports[i].symbols.empty()) RETURN_IF_ERROR(CheckType(given, ports[i], ports[i].shape, what));
    Array& shape = shapes[ports[i].name];
    shape.dtype = given.dtype;
    shape.shape = given.shape;
    const int64_t bytes = given.elements() * BytesOf(given.dtype);
    if (bytes > 0 && tensor.data == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " has no data"));
    buffers.push_back({DataOf(tensor), static_cast<size_t>(bytes)});
  }
  ASSIGN_OR_RETURN(const SymbolSizes sizes, SizesOfInputs(context.package().package(), shapes));
  context.SetSizes(sizes);
  return buffers;
}

}  // namespace

absl::Status RunDlpack(RunContext& context, const std::shared_ptr<LoadedPackage>& package, void* stream,
                       absl::Span<DLManagedTensorVersioned* const> inputs,
                       absl::Span<DLManagedTensorVersioned*> outputs) {
  const PackageManifest& manifest = package->package().manifest();
  if (inputs.size() != manifest.inputs.size() || outputs.size() != manifest.outputs.size())
    return absl::InvalidArgumentError(absl::StrCat(inputs.size(), " inputs and ", outputs.size(),
                                                   " outputs were given, and the package has ", manifest.inputs.size(),
                                                   " and ", manifest.outputs.size(), ": give all of them in order"));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("input '", manifest.inputs[i].name, "' is null"));
  // Without inputs, where a network of constants alone is, its outputs go to the package's device.
  const bool host = package->kind() != TargetKind::kCuda || (!inputs.empty() && IsHost(inputs[0]->dl_tensor.device));
  if (host && stream != nullptr)
    return absl::InvalidArgumentError("tensors on the host are run without a stream: give a null stream");
  ASSIGN_OR_RETURN(const std::vector<CallerBuffer> given, TakeInputs(context, host, inputs));
  RETURN_IF_ERROR(context.Prepare());
  std::vector<std::unique_ptr<MadeTensor>> made(outputs.size());
  std::vector<CallerBuffer> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ContextTensor& tensor = context.outputs()[i];
    const std::string what = absl::StrCat("output '", manifest.outputs[i].name, "'");
    if (outputs[i] == nullptr) {
      ASSIGN_OR_RETURN(made[i], Make(package, host, tensor, manifest.outputs[i].dtype));
    } else {
      RETURN_IF_ERROR(CheckTensor(*outputs[i], *package, host, what));
      RETURN_IF_ERROR(
          CheckType(PortOf(manifest.outputs[i].name, outputs[i]->dl_tensor), manifest.outputs[i], tensor.shape, what));
      if (outputs[i]->flags & kReadOnly) return absl::InvalidArgumentError(absl::StrCat(what, " is read-only"));
      if (tensor.bytes > 0 && outputs[i]->dl_tensor.data == nullptr)
        return absl::InvalidArgumentError(absl::StrCat(what, " has no data"));
    }
    results.push_back({DataOf(made[i] != nullptr ? made[i]->managed.dl_tensor : outputs[i]->dl_tensor),
                       static_cast<size_t>(tensor.bytes)});
  }
  RETURN_IF_ERROR(host ? context.Run(given, results) : context.RunOnStream(stream, given, results));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (made[i] != nullptr) outputs[i] = &made[i].release()->managed;
  return absl::OkStatus();
}

}  // namespace diapason
