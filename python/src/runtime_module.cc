// diapason._runtime: packages, over the C functions of libdiapason_runtime alone. The classes that users see are in
// python/diapason/package.py.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diapason/runtime.hpp"
#include "python/src/raise.h"

namespace nb = nanobind;

// As DLPack 1.x declares it; <diapason/runtime.h> leaves that to <dlpack/dlpack.h>, which Debian 12 has in an older
// version.
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  nb::dlpack::dltensor dl_tensor;
};

namespace diapason::python {
namespace {

constexpr int kMostAxes = 64;

const char* NameOfStatus(diapason_status status) {
  switch (status) {
    case DIAPASON_INVALID_ARGUMENT: return "INVALID_ARGUMENT";
    case DIAPASON_NOT_FOUND: return "NOT_FOUND";
    case DIAPASON_FAILED_PRECONDITION: return "FAILED_PRECONDITION";
    case DIAPASON_UNAVAILABLE: return "UNAVAILABLE";
    case DIAPASON_RESOURCE_EXHAUSTED: return "RESOURCE_EXHAUSTED";
    case DIAPASON_DATA_LOSS: return "DATA_LOSS";
    case DIAPASON_ABORTED: return "ABORTED";
    default: return "INTERNAL";
  }
}

const char* NameOfType(int32_t dtype) {
  switch (dtype) {
    case DIAPASON_FLOAT32: return "float32";
    case DIAPASON_FLOAT16: return "float16";
    case DIAPASON_FLOAT64: return "float64";
    case DIAPASON_INT32: return "int32";
    case DIAPASON_INT64: return "int64";
    case DIAPASON_BOOL: return "bool";
    case DIAPASON_INT8: return "int8";
    case DIAPASON_UINT8: return "uint8";
    case DIAPASON_BFLOAT16: return "bfloat16";
    default: return "unknown";
  }
}

// Bytes of an element; 0 for a type of a newer library.
size_t SizeOfType(int32_t dtype) {
  switch (dtype) {
    case DIAPASON_BOOL:
    case DIAPASON_INT8:
    case DIAPASON_UINT8: return 1;
    case DIAPASON_FLOAT16:
    case DIAPASON_BFLOAT16: return 2;
    case DIAPASON_FLOAT32:
    case DIAPASON_INT32: return 4;
    case DIAPASON_FLOAT64:
    case DIAPASON_INT64: return 8;
    default: return 0;
  }
}

// Waits for all that was put into streams of a GPU, which a context must not be freed before. The driver is there when
// there is such work.
void WaitForGpu(int device) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return;
  using Context = void*;
  const auto retain = reinterpret_cast<int (*)(Context*, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
  const auto release = reinterpret_cast<int (*)(int)>(dlsym(driver, "cuDevicePrimaryCtxRelease_v2"));
  const auto push = reinterpret_cast<int (*)(Context)>(dlsym(driver, "cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<int (*)(Context*)>(dlsym(driver, "cuCtxPopCurrent_v2"));
  const auto wait = reinterpret_cast<int (*)()>(dlsym(driver, "cuCtxSynchronize"));
  Context context = nullptr;
  if (retain != nullptr && release != nullptr && push != nullptr && pop != nullptr && wait != nullptr &&
      retain(&context, device) == 0) {
    if (push(context) == 0) {
      wait();
      pop(&context);
    }
    release(device);
  }
  dlclose(driver);
}

bool IsHost(const nb::ndarray<nb::ro>& array) {
  return array.device_type() == nb::device::cpu::value || array.device_type() == nb::device::cuda_host::value;
}

// The array as the C functions take it. What it points to is the array's.
template <typename Array>
DLManagedTensorVersioned View(const Array& array) {
  DLManagedTensorVersioned view{};
  view.major = 1;
  view.dl_tensor.data = const_cast<void*>(static_cast<const void*>(array.data()));
  view.dl_tensor.device = {array.device_type(), array.device_id()};
  view.dl_tensor.ndim = static_cast<int32_t>(array.ndim());
  view.dl_tensor.dtype = array.dtype();
  view.dl_tensor.shape = const_cast<int64_t*>(array.shape_ptr());
  view.dl_tensor.strides = const_cast<int64_t*>(array.stride_ptr());
  return view;
}

// Takes over an output of the library.
nb::object ArrayOf(DLManagedTensorVersioned* tensor) {
  const nb::dlpack::dltensor& made = tensor->dl_tensor;
  const nb::capsule owner(tensor, [](void* memory) noexcept {
    auto* const self = static_cast<DLManagedTensorVersioned*>(memory);
    self->deleter(self);
  });
  size_t shape[kMostAxes];
  for (int d = 0; d < made.ndim; ++d) shape[d] = static_cast<size_t>(made.shape[d]);
  return nb::cast(nb::ndarray<nb::array_api>(made.data, static_cast<size_t>(made.ndim), shape, owner, made.strides,
                                             made.dtype, made.device.device_type, made.device.device_id));
}

// The same memory with elements of another type of as many bytes, as an object that keeps `owner` alive.
nb::object Retyped(const nb::object& owner, nb::dlpack::dtype type) {
  const auto array = nb::cast<nb::ndarray<nb::ro>>(owner);
  size_t shape[kMostAxes];
  for (size_t d = 0; d < array.ndim(); ++d) shape[d] = array.shape(d);
  return nb::cast(nb::ndarray<nb::array_api>(const_cast<void*>(array.data()), array.ndim(), shape, owner,
                                             array.stride_ptr(), type, array.device_type(), array.device_id()));
}

// name, dtype, shape, symbols
using PortTuple = nb::tuple;

// Runs that nobody waited for are ordered by their stream, so a context stays with one.
struct Queue {
  bool host = true;
  uintptr_t stream = 0;
  auto operator<=>(const Queue&) const = default;
};

class Package {
 public:
  Package(const std::string& folder, int32_t device, int32_t threads) : threads_(threads) {
    Call([&] { package_.emplace(folder, device); });
    inputs_ = package_->inputs();
    outputs_ = package_->outputs();
  }
  ~Package() {
    const nb::gil_scoped_release unlocked;
    if (used_gpu_ >= 0) WaitForGpu(used_gpu_);
    free_.clear();
    package_.reset();
  }

  std::string network() const { return package_->network(); }
  std::string target() const { return package_->target(); }
  std::vector<std::string> symbols() const { return package_->symbols(); }
  nb::list inputs() const { return Describe(inputs_); }
  nb::list outputs() const { return Describe(outputs_); }
  std::vector<std::vector<int64_t>> plans() const {
    std::vector<std::vector<int64_t>> plans(diapason_package_plan_count(package_->get()));
    const int32_t symbols = diapason_package_symbol_count(package_->get());
    for (size_t p = 0; p < plans.size(); ++p)
      for (int32_t s = 0; s < symbols; ++s)
        plans[p].push_back(diapason_package_plan_size(package_->get(), static_cast<int32_t>(p), s));
    return plans;
  }

  // The outputs that were made; none where `outputs` is given.
  nb::list Run(const nb::list& inputs, const std::optional<nb::list>& outputs, uintptr_t stream) {
    const std::vector<nb::ndarray<nb::ro>> in = Arrays<nb::ndarray<nb::ro>>(inputs, inputs_, "input", "no array");
    std::vector<nb::ndarray<>> out;
    if (outputs.has_value()) out = Arrays<nb::ndarray<>>(*outputs, outputs_, "output", "no writable array");
    std::vector<DLManagedTensorVersioned> in_views, out_views;
    for (const auto& array : in) in_views.push_back(View(array));
    for (const auto& array : out) out_views.push_back(View(array));
    // As many as were given: the library says whether these are all.
    std::vector<DLManagedTensorVersioned*> given, results(outputs.has_value() ? out.size() : outputs_.size(), nullptr);
    for (auto& view : in_views) given.push_back(&view);
    for (size_t i = 0; i < out_views.size(); ++i) results[i] = &out_views[i];
    const Queue queue{in.empty() ? package_->device_type() != DIAPASON_CUDA : IsHost(in[0]), stream};
    if (!queue.host) used_gpu_ = in.empty() ? 0 : in[0].device_id();
    Call([&] { Borrowed(*this, queue).context().RunDlpack(given, results, reinterpret_cast<void*>(queue.stream)); });
    nb::list made;
    if (!outputs.has_value())
      for (DLManagedTensorVersioned* result : results) made.append(ArrayOf(result));
    return made;
  }

  // With memory at these addresses, of tensors that are dense in row-major order: of the host for cpu, else of the GPU,
  // whose stream the run is put into. The package has fixed shapes.
  void RunAt(const std::vector<uintptr_t>& inputs, const std::vector<uintptr_t>& outputs, int32_t gpu,
             uintptr_t stream) {
    const std::vector<runtime::Buffer> given = Buffers(inputs, inputs_), results = Buffers(outputs, outputs_);
    const Queue queue{gpu < 0, stream};
    if (gpu >= 0) used_gpu_ = gpu;
    Call([&] { Borrowed(*this, queue).context().RunOnStream(reinterpret_cast<void*>(queue.stream), given, results); });
  }

 private:
  // A context of the package for one run. Made and left without the interpreter's lock.
  class Borrowed {
   public:
    Borrowed(Package& package, const Queue& queue) : package_(package), queue_(queue), context_(package.Take(queue)) {}
    Borrowed(const Borrowed&) = delete;
    ~Borrowed() {
      const std::lock_guard<std::mutex> lock(package_.mutex_);
      package_.free_[queue_].push_back(std::move(context_));
    }

    runtime::Context& context() { return *context_; }

   private:
    Package& package_;
    const Queue queue_;
    std::unique_ptr<runtime::Context> context_;
  };

  // More or fewer than there are ports are the library's error to report.
  static std::vector<runtime::Buffer> Buffers(const std::vector<uintptr_t>& addresses,
                                              const std::vector<runtime::Port>& ports) {
    std::vector<runtime::Buffer> buffers;
    for (size_t i = 0; i < addresses.size(); ++i) {
      size_t bytes = i < ports.size() ? SizeOfType(ports[i].dtype) : 0;
      if (i < ports.size())
        for (const int64_t extent : ports[i].shape) bytes *= static_cast<size_t>(extent);
      buffers.emplace_back(reinterpret_cast<void*>(addresses[i]), bytes);
    }
    return buffers;
  }

  // Without the interpreter's lock; errors as Python's exceptions.
  template <typename Body>
  static void Call(Body body) {
    std::optional<runtime::Error> error;
    {
      const nb::gil_scoped_release unlocked;
      try {
        body();
      } catch (const runtime::Error& caught) {
        error = caught;
      }
    }
    if (error.has_value()) Raise(NameOfStatus(error->status()), error->what());
  }

  static nb::list Describe(const std::vector<runtime::Port>& ports) {
    nb::list list;
    for (const runtime::Port& port : ports) {
      nb::list shape, symbols;
      for (int64_t extent : port.shape) shape.append(extent);
      for (const std::string& symbol : port.symbols)
        symbols.append(symbol.empty() ? nb::object(nb::none()) : nb::object(nb::str(symbol.c_str())));
      list.append(nb::make_tuple(port.name, NameOfType(port.dtype), nb::tuple(shape), nb::tuple(symbols)));
    }
    return list;
  }

  template <typename Array>
  static std::vector<Array> Arrays(const nb::list& objects, const std::vector<runtime::Port>& ports, const char* what,
                                   const char* why) {
    std::vector<Array> arrays;
    for (size_t i = 0; i < objects.size(); ++i) {
      Array array;
      if (!nb::try_cast<Array>(objects[i], array, false)) {
        const std::string name = i < ports.size() ? ports[i].name : std::to_string(i);
        const std::string type =
            nb::cast<std::string>(nb::handle(Py_TYPE(nb::handle(objects[i]).ptr())).attr("__name__"));
        throw nb::type_error((std::string(what) + " '" + name + "' is a " + type + ", which is " + why +
                              ": give a NumPy array, or a tensor with __dlpack__")
                                 .c_str());
      }
      arrays.push_back(std::move(array));
    }
    return arrays;
  }

  std::unique_ptr<runtime::Context> Take(const Queue& queue) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto& free = free_[queue];
      if (!free.empty()) {
        std::unique_ptr<runtime::Context> context = std::move(free.back());
        free.pop_back();
        return context;
      }
    }
    return std::make_unique<runtime::Context>(*package_, threads_);
  }

  const int32_t threads_;
  std::optional<runtime::Package> package_;
  std::vector<runtime::Port> inputs_, outputs_;
  int used_gpu_ = -1;  // its number once a run was put into one of its streams
  std::mutex mutex_;   // guards all below
  std::map<Queue, std::vector<std::unique_ptr<runtime::Context>>> free_;
};

// Python objects of tensors with what PyTorch counts of their changes. Their references are not kept: who makes this
// watches whether they are gone.
// Functions of PyTorch that are much quicker than the attributes of tensors in Python that call them. Null where this
// PyTorch does not have them. A tensor of C++ (at::Tensor) is one pointer to its implementation, which Python calls
// _cdata.
struct TorchFunctions {
  int64_t (*version)(const void* tensor) = nullptr;
  int32_t (*data_ptr)(const void* tensor, void** memory) = nullptr;  // 0 on success

  static const TorchFunctions& Get() {
    static const TorchFunctions functions = [] {
      TorchFunctions found;
      void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
      if (library == nullptr) return found;
      found.version = reinterpret_cast<decltype(found.version)>(dlsym(library, "_ZNK2at10TensorBase8_versionEv"));
      found.data_ptr = reinterpret_cast<decltype(found.data_ptr)>(dlsym(library, "aoti_torch_get_data_ptr"));
      return found;
    }();
    return functions;
  }
  bool usable() const { return version != nullptr && data_ptr != nullptr; }
};

// Whether tensors of PyTorch are still what they were. Their references are not kept: the caller has weak ones, so that
// it knows when a tensor is gone and PyTorch refuses to exchange its implementation (torch.utils.swap_tensors).
class Watch {
 public:
  Watch(const nb::tuple& args, const std::vector<size_t>& positions) {
    quick_ = TorchFunctions::Get().usable();
    for (const size_t position : positions) {
      PyObject* const tensor = nb::handle(args[position]).ptr();
      Seen seen{position, tensor, reinterpret_cast<void*>(nb::cast<uintptr_t>(Attribute(tensor, "_cdata"))),
                See(tensor)};
      State quick;
      if (quick_) quick_ = SeeQuickly(seen, &quick) && quick == seen.state;  // not so: tensors have another layout
      seen_.push_back(seen);
    }
  }

  // Whether the arguments at these positions are the same objects, changed by nobody, with their memory where it was.
  bool Unchanged(const nb::tuple& args) const {
    for (const Seen& before : seen_) {
      PyObject* const tensor = PyTuple_GET_ITEM(args.ptr(), before.position);
      if (tensor != before.tensor) return false;
      State now;
      if (!quick_) {
        now = See(tensor);
      } else if (!SeeQuickly(before, &now)) {
        return false;
      }
      if (now != before.state) return false;
    }
    return true;
  }
  bool quick() const { return quick_; }

 private:
  struct State {
    int64_t version = 0;
    uint64_t memory = 0;
    bool operator==(const State&) const = default;
  };
  struct Seen {
    size_t position = 0;
    PyObject* tensor = nullptr;
    void* implementation = nullptr;
    State state;
  };

  static nb::object Attribute(PyObject* object, const char* name) {
    nb::object value = nb::steal(PyObject_GetAttrString(object, name));
    if (!value.is_valid()) nb::raise_python_error();
    return value;
  }

  static State See(PyObject* tensor) {
    const nb::object memory = Attribute(tensor, "data_ptr")();
    return {nb::cast<int64_t>(Attribute(tensor, "_version")), nb::cast<uint64_t>(memory)};
  }

  static bool SeeQuickly(const Seen& seen, State* state) {
    const TorchFunctions& torch = TorchFunctions::Get();
    void* memory = nullptr;
    if (torch.data_ptr(&seen.implementation, &memory) != 0) return false;
    *state = {torch.version(&seen.implementation), reinterpret_cast<uint64_t>(memory)};
    return true;
  }

  std::vector<Seen> seen_;
  bool quick_ = false;
};

}  // namespace

NB_MODULE(_runtime, module) {
  module.attr("version") = diapason_runtime_version();
  constexpr nb::dlpack::dtype kBits{static_cast<uint8_t>(nb::dlpack::dtype_code::UInt), 16, 1};
  constexpr nb::dlpack::dtype kBfloat16{static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
  module.def(
      "bfloat16_of_bits", [=](const nb::object& bits) { return Retyped(bits, kBfloat16); }, nb::arg("bits"),
      nb::sig("def bfloat16_of_bits(bits: object) -> object"),
      "The elements of an array of uint16 as the bits of bfloat16, in place.");
  module.def(
      "bits_of_bfloat16", [=](const nb::object& array) { return Retyped(array, kBits); }, nb::arg("array"),
      nb::sig("def bits_of_bfloat16(array: object) -> object"), "The inverse of bfloat16_of_bits.");
  nb::class_<Watch>(module, "Watch")
      .def(nb::init<const nb::tuple&, const std::vector<size_t>&>(), nb::arg("args"), nb::arg("positions"),
           nb::sig("def __init__(self, args: tuple, positions: list[int]) -> None"))
      .def("unchanged", &Watch::Unchanged, nb::arg("args"), nb::sig("def unchanged(self, args: tuple) -> bool"),
           "Whether the tensors at the positions are those of before, with the same versions and memory.")
      .def_prop_ro("quick", &Watch::quick,
                   "Whether PyTorch's functions of C++ tell, rather than attributes in Python.");
  nb::class_<Package>(module, "Package")
      .def(nb::init<const std::string&, int32_t, int32_t>(), nb::arg("folder"), nb::arg("device"), nb::arg("threads"))
      .def("network", &Package::network)
      .def("target", &Package::target)
      .def("symbols", &Package::symbols)
      .def("plans", &Package::plans, "Sizes of the symbols, by plan.")
      .def("inputs", &Package::inputs,
           nb::sig("def inputs(self) -> list[tuple[str, str, tuple[int, ...], tuple[str | None, ...]]]"),
           "Name, element type, shape and symbols of each.")
      .def("outputs", &Package::outputs,
           nb::sig("def outputs(self) -> list[tuple[str, str, tuple[int, ...], tuple[str | None, ...]]]"))
      .def("run", &Package::Run, nb::arg("inputs"), nb::arg("outputs").none(), nb::arg("stream"),
           nb::sig("def run(self, inputs: list, outputs: list | None, stream: int) -> list"),
           "Returns the outputs as objects with __dlpack__; none where outputs are given.")
      .def("run_at", &Package::RunAt, nb::arg("inputs"), nb::arg("outputs"), nb::arg("gpu"), nb::arg("stream"),
           nb::sig("def run_at(self, inputs: list[int], outputs: list[int], gpu: int, stream: int) -> None"),
           "With memory at these addresses: of the host where gpu is -1, else of that GPU, in a stream of it.");
}

}  // namespace diapason::python
