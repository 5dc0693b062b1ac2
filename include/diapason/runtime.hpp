// <diapason/runtime.h> for C++17: objects that free themselves, and errors as exceptions. Header-only, over the C functions alone, so
// that it works with any compiler and standard library.
//
//   diapason::runtime::Package package("resnet-18.package");
//   diapason::runtime::Context context(package);
//   std::vector<float> image(...), scores(context.Output(0).elements());
//   context.Run({image}, {scores});
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "diapason/runtime.h"

namespace diapason::runtime {

// What a call that failed says, and its status.
class Error : public std::runtime_error {
 public:
  Error(diapason_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  diapason_status status() const { return status_; }

 private:
  diapason_status status_;
};

namespace internal {

inline void Check(diapason_status status) {
  if (status != DIAPASON_OK) throw Error(status, diapason_last_error());
}

struct Deleter {
  void operator()(diapason_package* package) const { diapason_package_free(package); }
  void operator()(diapason_context* context) const { diapason_context_free(context); }
};

}  // namespace internal

// An input or output of a package.
struct Port {
  std::string name;
  int32_t dtype = 0;                 // DIAPASON_FLOAT32, ...
  std::vector<int64_t> shape;        // -1 where it depends on the sizes of symbolic dimensions
  std::vector<std::string> symbols;  // by axis; empty where the extent is fixed, or follows from no symbol alone
};

// A loaded package. Safe from any thread.
class Package {
 public:
  // `gpu`: the number of the GPU for a package for cuda; -1: the one that the package names.
  explicit Package(const std::string& folder, int32_t gpu = -1) {
    diapason_load_options options{};
    options.struct_size = sizeof options;
    options.device = gpu;
    diapason_package* package = nullptr;
    internal::Check(diapason_package_load(folder.c_str(), &options, &package));
    package_.reset(package);
  }
  // The bytes of a .dpk file, which must outlive the package, its contexts and their DLPack tensors.
  static Package FromMemory(const void* bytes, size_t size, int32_t gpu = -1) {
    diapason_load_options options{};
    options.struct_size = sizeof options;
    options.device = gpu;
    diapason_package* package = nullptr;
    internal::Check(diapason_package_load_memory(bytes, size, &options, &package));
    Package made;
    made.package_.reset(package);
    return made;
  }

  std::string network() const { return diapason_package_network(get()); }
  std::string target() const { return diapason_package_target(get()); }
  // DIAPASON_CPU, ...
  int32_t device_type() const { return diapason_package_device_type(get()); }
  std::vector<Port> inputs() const { return Ports(diapason_package_input_count(get()), diapason_package_input); }
  std::vector<Port> outputs() const { return Ports(diapason_package_output_count(get()), diapason_package_output); }
  std::vector<std::string> symbols() const {
    std::vector<std::string> names;
    for (int32_t i = 0; i < diapason_package_symbol_count(get()); ++i) names.emplace_back(diapason_package_symbol(get(), i));
    return names;
  }
  diapason_package* get() const { return package_.get(); }

 private:
  Package() = default;
  template <typename Describe>
  std::vector<Port> Ports(int32_t count, Describe describe) const {
    std::vector<Port> ports;
    for (int32_t i = 0; i < count; ++i) {
      diapason_port port{};
      port.struct_size = sizeof port;
      internal::Check(describe(get(), i, &port));
      Port& known = ports.emplace_back();
      known.name = port.name;
      known.dtype = port.dtype;
      known.shape.assign(port.shape, port.shape + port.rank);
      for (int32_t d = 0; d < port.rank; ++d) known.symbols.emplace_back(port.symbols[d] != nullptr ? port.symbols[d] : "");
    }
    return ports;
  }

  std::unique_ptr<diapason_package, internal::Deleter> package_;
};

// A tensor of a context, with the sizes that are set.
struct Tensor {
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  size_t bytes = 0;
  void* data = nullptr;  // the context's own memory, which needs no copy; may be null (diapason_tensor)

  size_t elements() const {
    size_t n = 1;
    for (int64_t extent : shape) n *= static_cast<size_t>(extent);
    return n;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Memory of a caller; by default the context's own.
struct Buffer : diapason_buffer {
  Buffer() : diapason_buffer{nullptr, 0} {}
  Buffer(void* data, size_t bytes) : diapason_buffer{data, bytes} {}
  // NOLINTBEGIN(google-explicit-constructor): Run({image}, {scores}) takes vectors
  template <typename T>
  Buffer(std::vector<T>& values) : diapason_buffer{values.data(), values.size() * sizeof(T)} {}
  // Inputs are read only.
  template <typename T>
  Buffer(const std::vector<T>& values) : diapason_buffer{const_cast<T*>(values.data()), values.size() * sizeof(T)} {}
  // NOLINTEND(google-explicit-constructor)
};

// Runs a package; one thread at a time. It may outlive the package.
class Context {
 public:
  // `threads`: of a run on cpu; 0: as many as the package was built for.
  explicit Context(const Package& package, int32_t threads = 0) {
    diapason_context_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    diapason_context* context = nullptr;
    internal::Check(diapason_context_create(package.get(), &options, &context));
    context_.reset(context);
  }

  void SetSize(const std::string& symbol, int64_t size) { internal::Check(diapason_context_set_size(get(), symbol.c_str(), size)); }
  Tensor Input(int32_t index) { return Describe(index, diapason_context_input); }
  Tensor Output(int32_t index) { return Describe(index, diapason_context_output); }

  // With the context's own memory.
  void Run() { internal::Check(diapason_run(get(), nullptr, 0, nullptr, 0)); }
  // With memory of the host.
  void Run(std::initializer_list<Buffer> inputs, std::initializer_list<Buffer> outputs) {
    internal::Check(diapason_run(get(), inputs.begin(), inputs.size(), outputs.begin(), outputs.size()));
  }
  void Run(const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs) {
    internal::Check(diapason_run(get(), inputs.data(), inputs.size(), outputs.data(), outputs.size()));
  }
  // With memory of the GPU, in a CUDA stream; does not wait (diapason_run_on_stream).
  void RunOnStream(void* stream, const std::vector<Buffer>& inputs = {}, const std::vector<Buffer>& outputs = {}) {
    internal::Check(diapason_run_on_stream(get(), stream, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
  }
  // With DLPack tensors (diapason_run_dlpack); outputs that are null are made.
  void RunDlpack(const std::vector<DLManagedTensorVersioned*>& inputs, std::vector<DLManagedTensorVersioned*>& outputs, void* stream = nullptr) {
    internal::Check(diapason_run_dlpack(get(), stream, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
  }
  diapason_context* get() const { return context_.get(); }

 private:
  template <typename Ask>
  Tensor Describe(int32_t index, Ask ask) {
    diapason_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    internal::Check(ask(get(), index, &tensor));
    return {tensor.dtype, {tensor.shape, tensor.shape + tensor.rank}, tensor.bytes, tensor.data};
  }

  std::unique_ptr<diapason_context, internal::Deleter> context_;
};

static_assert(sizeof(Buffer) == sizeof(diapason_buffer), "lists of buffers are passed as they are");

}  // namespace diapason::runtime
