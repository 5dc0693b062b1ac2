// The C functions of <diapason/runtime.h>. No exception leaves this file.
#include "diapason/runtime.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "runtime/dlpack.h"
#include "runtime/loaded_package.h"
#include "runtime/run_context.h"

struct diapason_package {
  std::shared_ptr<diapason::LoadedPackage> loaded;
};

struct diapason_context {
  std::shared_ptr<diapason::LoadedPackage> package;
  std::unique_ptr<diapason::RunContext> context;
  std::atomic<bool> busy{false};
};

namespace {

using diapason::CallerBuffer;
using diapason::PortFacts;

static_assert(sizeof(diapason_buffer) == sizeof(CallerBuffer) &&
              offsetof(diapason_buffer, bytes) == offsetof(CallerBuffer, bytes));
static_assert(DIAPASON_FLOAT32 == static_cast<int>(diapason::DType::kFloat32) &&
              DIAPASON_BFLOAT16 == static_cast<int>(diapason::DType::kBfloat16));
static_assert(DIAPASON_CPU == static_cast<int>(diapason::TargetKind::kCpu) &&
              DIAPASON_CUDA == static_cast<int>(diapason::TargetKind::kCuda));

thread_local std::string last_error;

diapason_status CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return DIAPASON_OK;
    case absl::StatusCode::kInvalidArgument: return DIAPASON_INVALID_ARGUMENT;
    case absl::StatusCode::kNotFound: return DIAPASON_NOT_FOUND;
    case absl::StatusCode::kFailedPrecondition: return DIAPASON_FAILED_PRECONDITION;
    case absl::StatusCode::kUnavailable: return DIAPASON_UNAVAILABLE;
    case absl::StatusCode::kResourceExhausted: return DIAPASON_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kDataLoss: return DIAPASON_DATA_LOSS;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnknown:  // the GPU was reset or is broken
      return DIAPASON_ABORTED;
    default: return DIAPASON_INTERNAL;
  }
}

// Runs the body of a function, and keeps what it says of an error.
template <typename Body>
diapason_status Guarded(Body body) noexcept {
  try {
    const absl::Status status = body();
    if (!status.ok()) last_error = std::string(status.message());
    return CodeOf(status);
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";  // short enough to be kept without any
    return DIAPASON_RESOURCE_EXHAUSTED;
  } catch (const std::exception& e) {
    try {
      last_error = e.what();
    } catch (...) {
      last_error.clear();
    }
    return DIAPASON_INTERNAL;
  } catch (...) {
    last_error = "unknown";
    return DIAPASON_INTERNAL;
  }
}

absl::Status NotNull(const void* pointer, const char* what) {
  return pointer != nullptr ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat(what, " is null"));
}

// The structure as this version knows it.
template <typename Struct>
absl::Status CheckSize(const Struct* given, const char* what) {
  RETURN_IF_ERROR(NotNull(given, what));
  if (given->struct_size >= sizeof(Struct)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the struct_size of ", what, " is ", given->struct_size,
                                                 ": set it to sizeof the structure, ", sizeof(Struct)));
}

// Runs a body with the context, unless another thread does.
template <typename Body>
diapason_status WithContext(diapason_context* context, Body body) noexcept {
  return Guarded([&]() -> absl::Status {
    RETURN_IF_ERROR(NotNull(context, "context"));
    if (context->busy.exchange(true, std::memory_order_acquire))
      return absl::FailedPreconditionError(
          "the context is used by another thread: give each thread a context of its own");
    struct Release {
      std::atomic<bool>& busy;
      ~Release() { busy.store(false, std::memory_order_release); }
    } release{context->busy};
    return body(*context->context);
  });
}

absl::Span<const CallerBuffer> BuffersOf(const diapason_buffer* buffers, size_t count) {
  return {reinterpret_cast<const CallerBuffer*>(buffers), count};
}

absl::Status CheckLists(const void* inputs, size_t input_count, const void* outputs, size_t output_count) {
  if (input_count > 0) RETURN_IF_ERROR(NotNull(inputs, "inputs"));
  if (output_count > 0) RETURN_IF_ERROR(NotNull(outputs, "outputs"));
  return absl::OkStatus();
}

absl::Status CheckIndex(int32_t index, size_t count, const char* what) {
  if (index >= 0 && static_cast<size_t>(index) < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is no ", what, " ", index, ": the package has ", count));
}

diapason_status DescribePort(const diapason_package* package,
                             const std::vector<PortFacts>& (diapason::LoadedPackage::*list)() const, int32_t index,
                             const char* what, diapason_port* port) {
  return Guarded([&]() -> absl::Status {
    RETURN_IF_ERROR(NotNull(package, "package"));
    RETURN_IF_ERROR(CheckSize(port, "port"));
    const std::vector<PortFacts>& ports = ((*package->loaded).*list)();
    RETURN_IF_ERROR(CheckIndex(index, ports.size(), what));
    const PortFacts& facts = ports[index];
    port->name = facts.name.c_str();
    port->dtype = static_cast<int32_t>(facts.dtype);
    port->rank = static_cast<int32_t>(facts.shape.size());
    port->shape = facts.shape.data();
    port->symbols = facts.symbols.data();
    return absl::OkStatus();
  });
}

int32_t Find(const std::vector<PortFacts>& ports, const char* name) {
  for (size_t i = 0; name != nullptr && i < ports.size(); ++i)
    if (ports[i].name == name) return static_cast<int32_t>(i);
  return -1;
}

diapason_status DescribeTensor(diapason_context* context, bool input, int32_t index, diapason_tensor* tensor) {
  return WithContext(context, [&](diapason::RunContext& run) -> absl::Status {
    RETURN_IF_ERROR(CheckSize(tensor, "tensor"));
    RETURN_IF_ERROR(run.Prepare());
    const std::vector<diapason::ContextTensor>& tensors = input ? run.inputs() : run.outputs();
    RETURN_IF_ERROR(CheckIndex(index, tensors.size(), input ? "input" : "output"));
    const std::vector<PortFacts>& ports = input ? run.package().inputs() : run.package().outputs();
    const diapason::ContextTensor& facts = tensors[index];
    tensor->data = facts.data;
    tensor->bytes = static_cast<size_t>(facts.bytes);
    tensor->dtype = static_cast<int32_t>(ports[index].dtype);
    tensor->rank = static_cast<int32_t>(facts.shape.size());
    tensor->shape = facts.shape.data();
    return absl::OkStatus();
  });
}

// What both ways of loading do around opening the package.
template <typename Open>
diapason_status LoadPackage(const diapason_load_options* options, diapason_package** package, Open open) noexcept {
  return Guarded([&]() -> absl::Status {
    RETURN_IF_ERROR(NotNull(package, "package"));
    *package = nullptr;
    if (options != nullptr) RETURN_IF_ERROR(CheckSize(options, "options"));
    ASSIGN_OR_RETURN(diapason::Package opened, open());
    ASSIGN_OR_RETURN(auto loaded,
                     diapason::LoadedPackage::Load(std::move(opened), options != nullptr ? options->device : -1));
    *package = new diapason_package{std::move(loaded)};
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

const char* diapason_last_error(void) { return last_error.c_str(); }

const char* diapason_runtime_version(void) { return DIAPASON_RUNTIME_VERSION; }

diapason_status diapason_package_load(const char* path, const diapason_load_options* options,
                                      diapason_package** package) {
  return LoadPackage(options, package, [&]() -> absl::StatusOr<diapason::Package> {
    RETURN_IF_ERROR(NotNull(path, "path"));
    return diapason::Package::Open(path);
  });
}

diapason_status diapason_package_load_memory(const void* bytes, size_t size, const diapason_load_options* options,
                                             diapason_package** package) {
  return LoadPackage(options, package, [&]() -> absl::StatusOr<diapason::Package> {
    RETURN_IF_ERROR(NotNull(bytes, "bytes"));
    return diapason::Package::FromMemory({static_cast<const char*>(bytes), size}, "memory");
  });
}

void diapason_package_free(diapason_package* package) { delete package; }

const char* diapason_package_network(const diapason_package* package) {
  return package != nullptr ? package->loaded->package().manifest().network.c_str() : nullptr;
}

const char* diapason_package_target(const diapason_package* package) {
  return package != nullptr ? package->loaded->target().c_str() : nullptr;
}

int32_t diapason_package_device_type(const diapason_package* package) {
  return package != nullptr ? static_cast<int32_t>(package->loaded->kind()) : -1;
}

int32_t diapason_package_input_count(const diapason_package* package) {
  return package != nullptr ? static_cast<int32_t>(package->loaded->inputs().size()) : -1;
}

int32_t diapason_package_output_count(const diapason_package* package) {
  return package != nullptr ? static_cast<int32_t>(package->loaded->outputs().size()) : -1;
}

diapason_status diapason_package_input(const diapason_package* package, int32_t index, diapason_port* port) {
  return DescribePort(package, &diapason::LoadedPackage::inputs, index, "input", port);
}

diapason_status diapason_package_output(const diapason_package* package, int32_t index, diapason_port* port) {
  return DescribePort(package, &diapason::LoadedPackage::outputs, index, "output", port);
}

int32_t diapason_package_find_input(const diapason_package* package, const char* name) {
  return package != nullptr ? Find(package->loaded->inputs(), name) : -1;
}

int32_t diapason_package_find_output(const diapason_package* package, const char* name) {
  return package != nullptr ? Find(package->loaded->outputs(), name) : -1;
}

int32_t diapason_package_symbol_count(const diapason_package* package) {
  return package != nullptr ? static_cast<int32_t>(package->loaded->symbols().size()) : -1;
}

const char* diapason_package_symbol(const diapason_package* package, int32_t symbol) {
  const bool there = package != nullptr && symbol >= 0 && symbol < diapason_package_symbol_count(package);
  return there ? package->loaded->symbols()[symbol].c_str() : nullptr;
}

int32_t diapason_package_plan_count(const diapason_package* package) {
  return package != nullptr ? static_cast<int32_t>(package->loaded->package().plans().size()) : -1;
}

int64_t diapason_package_plan_size(const diapason_package* package, int32_t plan, int32_t symbol) {
  if (package == nullptr || plan < 0 || plan >= diapason_package_plan_count(package)) return -1;
  if (symbol < 0 || symbol >= diapason_package_symbol_count(package)) return -1;
  const diapason::SymbolSizes& sizes = package->loaded->package().plans()[plan].sizes;
  const auto size = sizes.find(package->loaded->symbols()[symbol]);
  return size != sizes.end() ? size->second : -1;
}

diapason_status diapason_context_create(diapason_package* package, const diapason_context_options* options,
                                        diapason_context** context) {
  return Guarded([&]() -> absl::Status {
    RETURN_IF_ERROR(NotNull(context, "context"));
    *context = nullptr;
    RETURN_IF_ERROR(NotNull(package, "package"));
    if (options != nullptr) RETURN_IF_ERROR(CheckSize(options, "options"));
    const int threads = options != nullptr ? options->threads : 0;
    constexpr int kMostThreads = 4096;
    if (threads < 0 || threads > kMostThreads)
      return absl::InvalidArgumentError(
          absl::StrCat("a context cannot have ", threads, " threads: give 1 to ", kMostThreads, ", or 0"));
    ASSIGN_OR_RETURN(std::unique_ptr<diapason::RunContext> run, diapason::RunContext::Create(package->loaded, threads));
    auto made = std::make_unique<diapason_context>();
    made->package = package->loaded;
    made->context = std::move(run);
    *context = made.release();
    return absl::OkStatus();
  });
}

void diapason_context_free(diapason_context* context) { delete context; }

diapason_status diapason_context_set_size(diapason_context* context, const char* symbol, int64_t size) {
  return WithContext(context, [&](diapason::RunContext& run) -> absl::Status {
    RETURN_IF_ERROR(NotNull(symbol, "symbol"));
    return run.SetSize(symbol, size);
  });
}

diapason_status diapason_context_input(diapason_context* context, int32_t index, diapason_tensor* tensor) {
  return DescribeTensor(context, true, index, tensor);
}

diapason_status diapason_context_output(diapason_context* context, int32_t index, diapason_tensor* tensor) {
  return DescribeTensor(context, false, index, tensor);
}

diapason_status diapason_run(diapason_context* context, const diapason_buffer* inputs, size_t input_count,
                             const diapason_buffer* outputs, size_t output_count) {
  return WithContext(context, [&](diapason::RunContext& run) -> absl::Status {
    RETURN_IF_ERROR(CheckLists(inputs, input_count, outputs, output_count));
    return run.Run(BuffersOf(inputs, input_count), BuffersOf(outputs, output_count));
  });
}

// NOLINTNEXTLINE(readability-function-size): the C API has no struct for its lists
diapason_status diapason_run_on_stream(diapason_context* context, void* stream, const diapason_buffer* inputs,
                                       size_t input_count, const diapason_buffer* outputs, size_t output_count) {
  return WithContext(context, [&](diapason::RunContext& run) -> absl::Status {
    RETURN_IF_ERROR(CheckLists(inputs, input_count, outputs, output_count));
    return run.RunOnStream(stream, BuffersOf(inputs, input_count), BuffersOf(outputs, output_count));
  });
}

// NOLINTNEXTLINE(readability-function-size): the C API has no struct for its lists
diapason_status diapason_run_dlpack(diapason_context* context, void* stream,
                                    struct DLManagedTensorVersioned* const* inputs, size_t input_count,
                                    struct DLManagedTensorVersioned** outputs, size_t output_count) {
  return WithContext(context, [&](diapason::RunContext& run) -> absl::Status {
    RETURN_IF_ERROR(CheckLists(inputs, input_count, outputs, output_count));
    return diapason::RunDlpack(run, context->package, stream, {inputs, input_count}, {outputs, output_count});
  });
}

}  // extern "C"
