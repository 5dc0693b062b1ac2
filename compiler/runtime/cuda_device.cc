#include "compiler/runtime/cuda_device.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/argument_table.h"
#include "compiler/runtime/cuda_library.h"
#include "compiler/runtime/launch_paths.h"
#include "compiler/runtime/library_calls.h"
#include "compiler/runtime/nvml.h"

namespace diapason {
namespace {

// The largest cluster that every device with clusters has.
constexpr int kPortableCluster = 8;

// "sm_90a" and "sm_90" name the same device.
std::string PlainArch(std::string arch) {
  while (!arch.empty() && (arch.back() < '0' || arch.back() > '9')) arch.pop_back();
  return arch;
}

// fp32 lanes of a multiprocessor, from NVIDIA's tables of compute capabilities.
int LanesPerCore(int major, int minor) {
  if (major == 8) return minor == 0 ? 64 : 128;
  return major < 8 ? 64 : 128;
}

std::string UuidText(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

absl::StatusOr<CUdevice> FindDevice(const CudaLibrary& cuda, const Target& target) {
  int count = 0;
  RETURN_IF_ERROR(cuda.ToStatus(cuda.DeviceGetCount(&count), "target 'cuda': counting the GPUs"));
  if (count == 0)
    return absl::UnavailableError(
        "target 'cuda': the NVIDIA driver lists no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or choose target "
        "'cpu'");
  if (target.device < 0 || target.device >= count)
    return absl::UnavailableError(absl::StrCat("target '", target.ToString(), "': there ", count == 1 ? "is" : "are",
                                               " ", count, count == 1 ? " GPU" : " GPUs",
                                               " here; give a -device from 0 to ", count - 1));
  CUdevice device = 0;
  RETURN_IF_ERROR(cuda.ToStatus(cuda.DeviceGet(&device, target.device), "target 'cuda': opening the GPU"));
  return device;
}

// 0 for an attribute that the driver does not know.
int Attribute(const CudaLibrary& cuda, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return cuda.DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

// Replaces `fact` by what the device says, if it says anything.
template <typename Fact>
void Take(Fact& fact, double reported) {
  if (reported > 0) fact = static_cast<Fact>(reported);
}

DeviceFacts ReadFacts(const CudaLibrary& cuda, CUdevice device, const Target& target) {
  const auto ask = [&](CUdevice_attribute what) { return static_cast<double>(Attribute(cuda, device, what)); };
  const int major = Attribute(cuda, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = Attribute(cuda, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  Target resolved = target;
  resolved.arch = absl::StrCat("sm_", major, minor);
  DeviceFacts facts = DefaultFacts(resolved);
  facts.arch = resolved.arch;
  char name[256] = "";
  if (cuda.DeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS) facts.model = name;
  CUuuid uuid{};
  if (cuda.DeviceGetUuid(&uuid, device) == CUDA_SUCCESS) facts.uuid = UuidText(uuid);
  int driver = 0;
  if (cuda.DriverGetVersion(&driver) == CUDA_SUCCESS)
    facts.driver = absl::StrCat("CUDA ", driver / 1000, ".", driver % 1000 / 10);
  Take(facts.num_cores, ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  Take(facts.max_threads_per_block, ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  Take(facts.max_shared_bytes, ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  Take(facts.shared_bytes_per_core, ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  Take(facts.registers_per_core, ask(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR));
  Take(facts.max_threads_per_core, ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
  Take(facts.warp_size, ask(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  Take(facts.l2_bytes, ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  Take(facts.clock_hz, 1e3 * ask(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
  // Two transfers a clock (double data rate) of a bus given in bits.
  Take(facts.bandwidth,
       2e3 * ask(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * ask(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8);
  facts.flops = 2.0 * LanesPerCore(major, minor) * facts.num_cores * facts.clock_hz;
  return facts;
}

absl::Status CheckArch(const Target& target, const DeviceFacts& facts) {
  if (target.arch.empty() || PlainArch(target.arch) == facts.arch) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("target '", target.ToString(), "': the GPU here (", facts.model, ") is ",
                                             facts.arch, "; leave -arch out, or give -arch=", facts.arch));
}

class CudaBuffer : public DeviceBuffer {
 public:
  // cuda: null for a view, which owns nothing.
  CudaBuffer(const CudaLibrary* cuda, CUcontext context, CUdeviceptr address, int64_t bytes)
      : cuda_(cuda), context_(context), address_(address), bytes_(bytes) {}
  ~CudaBuffer() override {
    if (cuda_ == nullptr) return;
    cuda_->CtxSetCurrent(context_);
    cuda_->MemFree(address_);  // after a fault every call fails; the end of the process frees all
  }
  int64_t bytes() const override { return bytes_; }
  CUdeviceptr address() const { return address_; }

 private:
  const CudaLibrary* const cuda_;
  const CUcontext context_;
  const CUdeviceptr address_;
  const int64_t bytes_;
};

CUdeviceptr GpuAddressOf(const DeviceBuffer& buffer) { return static_cast<const CudaBuffer&>(buffer).address(); }

class CudaModule : public Module {
 public:
  CudaModule(const CudaLibrary& cuda, CUcontext context, CUmodule module)
      : cuda_(cuda), context_(context), module_(module) {}
  ~CudaModule() override {
    cuda_.CtxSetCurrent(context_);
    cuda_.ModuleUnload(module_);
  }
  CUmodule get() const { return module_; }

 private:
  const CudaLibrary& cuda_;
  const CUcontext context_;
  const CUmodule module_;
};

// A launch with the driver's function found and allowed what it needs.
struct Prepared {
  CUfunction function = nullptr;
  Kernel kernel;
  unsigned dynamic_shared = 0;
  std::vector<CUdeviceptr> args;
  std::shared_ptr<PreparedCall> library;  // not null: this call is made, and no function launched
  CUgraphNode node = nullptr;  // of the captured graph; null for calls of libraries, and where it is not known
  bool stale = false;          // the instantiated graph has other arguments for it than `args`
};

class CudaPlan : public Plan {
 public:
  CudaPlan(const CudaLibrary& cuda, CUcontext context, CUstream stream)
      : cuda_(cuda), context_(context), stream_(stream) {}
  ~CudaPlan() override;
  // Captures the launches into a graph and instantiates it. To be called once. `workspace` is for the calls of
  // libraries, all of them in turn; null without such calls. `arguments`: of the launches.
  absl::Status Capture(std::vector<Prepared> launches, ArgumentTable arguments, std::unique_ptr<DeviceBuffer> workspace,
                       const LaunchPaths& paths);
  // The same in order, for SecondsOfLaunches: events of the graph take the time between launches, none of which starts
  // early.
  absl::Status CaptureTimed(std::vector<Prepared> launches, std::unique_ptr<DeviceBuffer> workspace);
  // Of the last run, by launch. REQUIRES: captured by CaptureTimed, and run.
  absl::StatusOr<std::vector<double>> SecondsOfLaunches();
  absl::Status Run() override;
  absl::Status Enqueue(void* stream) override;
  absl::StatusOr<double> Time(int64_t times) override;
  bool CanRedirect(const DeviceBuffer& buffer) const override;
  absl::Status Redirect(absl::Span<const Redirection> redirections) override;
  int paths() const override { return static_cast<int>(streams_.size()) + 1; }

 private:
  absl::Status Launch(Prepared& prepared, CUstream stream);
  // The node that the last launch into a stream that is captured has become; null where the driver does not tell.
  CUgraphNode LastNode(CUstream stream) const;
  // Gives the instantiated graph the arguments of a launch.
  absl::Status Update(Prepared& prepared);
  absl::Status LaunchAll(const LaunchPaths& paths);
  absl::Status LaunchTimed(std::vector<Prepared>& launches);
  // A graph of what `launch_all` puts into the stream.
  absl::Status CaptureGraph(const std::function<absl::Status()>& launch_all);
  absl::StatusOr<double> SecondsBetween(CUevent start, CUevent end);
  absl::Status MakeStreams(int count);
  absl::Status Check(CUresult result, const char* doing) { return cuda_.ToStatus(result, doing); }

  const CudaLibrary& cuda_;
  const CUcontext context_;
  const CUstream stream_;
  // The captured graph, by whose nodes those of the instantiated one are named; null where that is never done.
  CUgraph captured_ = nullptr;
  CUgraphExec graph_ = nullptr;
  std::vector<Prepared> launches_;  // empty in a plan that takes the time of launches
  ArgumentTable arguments_;
  std::vector<size_t> stale_;  // launches with `stale`
  std::unique_ptr<DeviceBuffer> workspace_;
  CUevent start_ = nullptr, end_ = nullptr;
  std::vector<CUstream> streams_;  // of the paths behind the first, whose stream is the device's
  std::vector<CUevent> events_;    // that order paths while they are captured, or that take times
};

CudaPlan::~CudaPlan() {
  cuda_.CtxSetCurrent(context_);
  if (graph_ != nullptr) cuda_.GraphExecDestroy(graph_);
  if (captured_ != nullptr) cuda_.GraphDestroy(captured_);
  if (start_ != nullptr) cuda_.EventDestroy(start_);
  if (end_ != nullptr) cuda_.EventDestroy(end_);
  for (CUevent event : events_) cuda_.EventDestroy(event);
  for (CUstream stream : streams_) cuda_.StreamDestroy(stream);
}

// Calls a library with operands and workspace at these addresses.
absl::Status Call(PreparedCall& call, const std::vector<CUdeviceptr>& operands, const DeviceBuffer* workspace) {
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); };
  std::vector<void*> pointers;
  for (CUdeviceptr operand : operands) pointers.push_back(pointer(operand));
  return call.Enqueue(pointers, workspace != nullptr ? pointer(GpuAddressOf(*workspace)) : nullptr);
}

absl::Status CudaPlan::Launch(Prepared& prepared, CUstream stream) {
  if (prepared.library != nullptr) return Call(*prepared.library, prepared.args, workspace_.get());
  std::vector<void*> params;
  for (CUdeviceptr& arg : prepared.args) params.push_back(&arg);
  const Kernel& kernel = prepared.kernel;
  const auto dim = [](int64_t extent) { return static_cast<unsigned>(extent); };
  const std::string doing = absl::StrCat("launching kernel '", kernel.name, "'");
  if (kernel.cluster <= 1 && !kernel.overlap) {
    return cuda_.ToStatus(
        cuda_.LaunchKernel(prepared.function, dim(kernel.grid[0]), dim(kernel.grid[1]), dim(kernel.grid[2]),
                           dim(kernel.block[0]), dim(kernel.block[1]), dim(kernel.block[2]), prepared.dynamic_shared,
                           stream, params.data(), nullptr),
        doing);
  }
  std::vector<CUlaunchAttribute> attributes;
  if (kernel.cluster > 1) {
    CUlaunchAttribute& attribute = attributes.emplace_back();
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = static_cast<unsigned>(kernel.cluster);
    attribute.value.clusterDim.y = 1;
    attribute.value.clusterDim.z = 1;
  }
  if (kernel.overlap) {
    CUlaunchAttribute& attribute = attributes.emplace_back();
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config{};
  config.gridDimX = dim(kernel.grid[0]);
  config.gridDimY = dim(kernel.grid[1]);
  config.gridDimZ = dim(kernel.grid[2]);
  config.blockDimX = dim(kernel.block[0]);
  config.blockDimY = dim(kernel.block[1]);
  config.blockDimZ = dim(kernel.block[2]);
  config.sharedMemBytes = prepared.dynamic_shared;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return cuda_.ToStatus(cuda_.LaunchKernelEx(&config, prepared.function, params.data(), nullptr), doing);
}

CUgraphNode CudaPlan::LastNode(CUstream stream) const {
  if (cuda_.GraphExecKernelNodeSetParams == nullptr) return nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;  // on which the next one will depend: after a launch, its own
  const void* edges = nullptr;
  size_t count = 0;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (cuda_.StreamGetCaptureInfo3 != nullptr)
    result = cuda_.StreamGetCaptureInfo3(stream, &status, nullptr, nullptr, &nodes, &edges, &count);
  else if (cuda_.StreamGetCaptureInfo2 != nullptr)
    result = cuda_.StreamGetCaptureInfo2(stream, &status, nullptr, nullptr, &nodes, &count);
  const bool known = result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1;
  return known ? nodes[0] : nullptr;
}

absl::Status CudaPlan::MakeStreams(int count) {
  for (int i = 0; i < count; ++i) {
    CUstream stream = nullptr;
    RETURN_IF_ERROR(Check(cuda_.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream"));
    streams_.push_back(stream);
  }
  return absl::OkStatus();
}

// Streams of other paths join the capture by waiting for an event of it, and are waited for at its end.
absl::Status CudaPlan::LaunchAll(const LaunchPaths& paths) {
  const auto stream_of = [&](int path) { return path == 0 ? stream_ : streams_[path - 1]; };
  const auto record = [&](CUstream stream, CUevent* event) {
    RETURN_IF_ERROR(Check(cuda_.EventCreate(event, CU_EVENT_DISABLE_TIMING), "making an event"));
    events_.push_back(*event);
    return Check(cuda_.EventRecord(*event, stream), "recording an event");
  };
  const auto wait = [&](CUstream stream, CUevent event) {
    return Check(cuda_.StreamWaitEvent(stream, event, 0), "waiting for an event");
  };
  std::vector<bool> waited_for(launches_.size(), false), joined(paths.count, false);
  for (const PathStep& step : paths.steps)
    for (int launch : step.waits) waited_for[launch] = true;
  for (size_t path = 1; path < paths.last.size(); ++path) waited_for[paths.last[path]] = true;
  std::vector<CUevent> done(launches_.size(), nullptr);
  CUevent begin = nullptr;
  if (paths.count > 1) RETURN_IF_ERROR(record(stream_, &begin));
  for (size_t i = 0; i < launches_.size(); ++i) {
    const PathStep& step = paths.steps[i];
    const CUstream stream = stream_of(step.path);
    if (step.path > 0 && !joined[step.path] && step.waits.empty()) RETURN_IF_ERROR(wait(stream, begin));
    joined[step.path] = true;
    for (int launch : step.waits) RETURN_IF_ERROR(wait(stream, done[launch]));
    // Only the kernel that a kernel follows at once can let it start early.
    if (paths.count > 1 && !step.alone) launches_[i].kernel.overlap = false;
    RETURN_IF_ERROR(Launch(launches_[i], stream));
    if (launches_[i].library == nullptr) launches_[i].node = LastNode(stream);
    if (waited_for[i]) RETURN_IF_ERROR(record(stream, &done[i]));
  }
  for (size_t path = 1; path < paths.last.size(); ++path) RETURN_IF_ERROR(wait(stream_, done[paths.last[path]]));
  return absl::OkStatus();
}

absl::Status CudaPlan::LaunchTimed(std::vector<Prepared>& launches) {
  const auto record = [&] {
    CUevent event = nullptr;
    RETURN_IF_ERROR(Check(cuda_.EventCreate(&event, CU_EVENT_DEFAULT), "making an event"));
    events_.push_back(event);
    return Check(cuda_.EventRecordWithFlags(event, stream_, CU_EVENT_RECORD_EXTERNAL), "recording an event");
  };
  // Nothing is between the first two: what the events themselves take.
  RETURN_IF_ERROR(record());
  RETURN_IF_ERROR(record());
  for (Prepared& prepared : launches) {
    prepared.kernel.overlap = false;
    RETURN_IF_ERROR(Launch(prepared, stream_));
    RETURN_IF_ERROR(record());
  }
  return absl::OkStatus();
}

absl::Status CudaPlan::Capture(std::vector<Prepared> launches, ArgumentTable arguments,
                               std::unique_ptr<DeviceBuffer> workspace, const LaunchPaths& paths) {
  launches_ = std::move(launches);
  arguments_ = std::move(arguments);
  workspace_ = std::move(workspace);
  RETURN_IF_ERROR(MakeStreams(std::max(paths.count, 1) - 1));
  RETURN_IF_ERROR(Check(cuda_.EventCreate(&start_, CU_EVENT_DEFAULT), "making an event"));
  RETURN_IF_ERROR(Check(cuda_.EventCreate(&end_, CU_EVENT_DEFAULT), "making an event"));
  return CaptureGraph([&] { return LaunchAll(paths); });
}

absl::Status CudaPlan::CaptureTimed(std::vector<Prepared> launches, std::unique_ptr<DeviceBuffer> workspace) {
  workspace_ = std::move(workspace);
  return CaptureGraph([&] { return LaunchTimed(launches); });
}

absl::Status CudaPlan::CaptureGraph(const std::function<absl::Status()>& launch_all) {
  RETURN_IF_ERROR(
      Check(cuda_.StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "starting to capture a graph"));
  const absl::Status launched = launch_all();
  // The capture must be ended in any case, or the stream stays in it. Its own error is a consequence of the first.
  CUgraph graph = nullptr;
  const absl::Status ended = Check(cuda_.StreamEndCapture(stream_, &graph), "capturing a graph");
  absl::Status made = !launched.ok() ? launched : ended;
  if (made.ok()) made = Check(cuda_.GraphInstantiateWithFlags(&graph_, graph, 0), "instantiating a graph");
  const bool named =
      std::any_of(launches_.begin(), launches_.end(), [](const Prepared& p) { return p.node != nullptr; });
  if (made.ok() && named)
    captured_ = graph;
  else if (graph != nullptr)
    cuda_.GraphDestroy(graph);
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(Check(cuda_.GraphUpload(graph_, stream_), "uploading a graph"));
  return Check(cuda_.StreamSynchronize(stream_), "uploading a graph");
}

absl::Status CudaPlan::Run() {
  RETURN_IF_ERROR(Check(cuda_.CtxSetCurrent(context_), "selecting the GPU"));
  RETURN_IF_ERROR(Check(cuda_.GraphLaunch(graph_, stream_), "launching a graph"));
  return Check(cuda_.StreamSynchronize(stream_), "running kernels");
}

bool CudaPlan::CanRedirect(const DeviceBuffer& buffer) const {
  const std::vector<ArgumentPlace>& places = arguments_.PlacesOf(buffer);
  return !places.empty() && std::all_of(places.begin(), places.end(), [&](const ArgumentPlace& place) {
    return launches_[place.launch].node != nullptr;
  });
}

absl::Status CudaPlan::Redirect(absl::Span<const Redirection> redirections) {
  for (const Redirection& redirection : redirections) {
    const auto address = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(redirection.address));
    for (const ArgumentPlace& place : arguments_.PlacesOf(*redirection.buffer)) {
      Prepared& prepared = launches_[place.launch];
      CUdeviceptr& argument = prepared.args[place.argument];
      if (argument == address) continue;
      argument = address;
      if (!prepared.stale) stale_.push_back(place.launch);
      prepared.stale = true;
    }
  }
  if (stale_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Check(cuda_.CtxSetCurrent(context_), "selecting the GPU"));
  while (!stale_.empty()) {
    RETURN_IF_ERROR(Update(launches_[stale_.back()]));
    stale_.pop_back();
  }
  return absl::OkStatus();
}

// Attributes of a node (cluster, early start) are no part of its parameters, and stay as they were captured.
absl::Status CudaPlan::Update(Prepared& prepared) {
  std::vector<void*> arguments;
  for (CUdeviceptr& arg : prepared.args) arguments.push_back(&arg);
  const Kernel& kernel = prepared.kernel;
  CUDA_KERNEL_NODE_PARAMS_v1 params{};
  params.func = prepared.function;
  params.gridDimX = static_cast<unsigned>(kernel.grid[0]);
  params.gridDimY = static_cast<unsigned>(kernel.grid[1]);
  params.gridDimZ = static_cast<unsigned>(kernel.grid[2]);
  params.blockDimX = static_cast<unsigned>(kernel.block[0]);
  params.blockDimY = static_cast<unsigned>(kernel.block[1]);
  params.blockDimZ = static_cast<unsigned>(kernel.block[2]);
  params.sharedMemBytes = prepared.dynamic_shared;
  params.kernelParams = arguments.data();
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.GraphExecKernelNodeSetParams(graph_, prepared.node, &params),
                                 absl::StrCat("giving kernel '", kernel.name, "' other memory")));
  prepared.stale = false;
  return absl::OkStatus();
}

absl::Status CudaPlan::Enqueue(void* stream) {
  RETURN_IF_ERROR(Check(cuda_.CtxSetCurrent(context_), "selecting the GPU"));
  return Check(cuda_.GraphLaunch(graph_, static_cast<CUstream>(stream)), "launching a graph");
}

absl::StatusOr<double> CudaPlan::Time(int64_t times) {
  RETURN_IF_ERROR(Check(cuda_.CtxSetCurrent(context_), "selecting the GPU"));
  RETURN_IF_ERROR(Check(cuda_.EventRecord(start_, stream_), "recording an event"));
  for (int64_t i = 0; i < times; ++i) RETURN_IF_ERROR(Check(cuda_.GraphLaunch(graph_, stream_), "launching a graph"));
  RETURN_IF_ERROR(Check(cuda_.EventRecord(end_, stream_), "recording an event"));
  RETURN_IF_ERROR(Check(cuda_.StreamSynchronize(stream_), "running kernels"));
  float milliseconds = 0;
  RETURN_IF_ERROR(Check(cuda_.EventElapsedTime(&milliseconds, start_, end_), "reading the time"));
  return milliseconds * 1e-3;
}

absl::StatusOr<double> CudaPlan::SecondsBetween(CUevent start, CUevent end) {
  float milliseconds = 0;
  RETURN_IF_ERROR(Check(cuda_.EventElapsedTime(&milliseconds, start, end), "reading the time"));
  return milliseconds * 1e-3;
}

absl::StatusOr<std::vector<double>> CudaPlan::SecondsOfLaunches() {
  ASSIGN_OR_RETURN(const double of_events, SecondsBetween(events_[0], events_[1]));
  std::vector<double> seconds;
  for (size_t i = 2; i < events_.size(); ++i) {
    ASSIGN_OR_RETURN(const double one, SecondsBetween(events_[i - 1], events_[i]));
    seconds.push_back(std::max(0.0, one - of_events));
  }
  return seconds;
}

class CudaLaunchTimer : public LaunchTimer {
 public:
  explicit CudaLaunchTimer(std::unique_ptr<CudaPlan> plan) : plan_(std::move(plan)) {}
  absl::StatusOr<std::vector<double>> Run() override {
    RETURN_IF_ERROR(plan_->Run());
    return plan_->SecondsOfLaunches();
  }

 private:
  const std::unique_ptr<CudaPlan> plan_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const CudaLibrary& cuda, CUdevice device, DeviceFacts facts)
      : cuda_(cuda), device_(device), facts_(std::move(facts)), nvml_(Nvml::Open(facts_.uuid)) {}
  ~CudaDevice() override;
  absl::Status Open();

  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return TargetKind::kCuda; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override;
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override;
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status CopyOn(void* stream, DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override;
  void* AddressOf(const DeviceBuffer& buffer) const override;
  std::unique_ptr<DeviceBuffer> Wrap(void* address, int64_t bytes) override;
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override;
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    return MakePlanOn(launches, 1);
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakeParallelPlan(std::vector<Launch> launches) override {
    return MakePlanOn(launches, kMostPaths);
  }
  absl::StatusOr<std::unique_ptr<LaunchTimer>> MakeLaunchTimer(std::vector<Launch> launches) override;
  absl::Status FlushCache() override;
  Clocks clocks() const override { return nvml_ != nullptr ? nvml_->clocks() : Clocks{}; }

 private:
  absl::Status Select() { return cuda_.ToStatus(cuda_.CtxSetCurrent(context_), "selecting the GPU"); }
  absl::Status Wait(const char* doing) { return cuda_.ToStatus(cuda_.StreamSynchronize(stream_), doing); }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlanOn(const std::vector<Launch>& launches, int most_paths);
  absl::StatusOr<Prepared> Prepare(const Launch& launch);
  absl::StatusOr<std::vector<Prepared>> PrepareAll(const std::vector<Launch>& launches);
  // Prepares a call of a library. The first time, makes it once outside of any graph: libraries load their kernels
  // then, which must not happen while a graph is captured. What it computes goes to memory of its own.
  absl::Status PrepareLibrary(const LibraryCall& call, Prepared* prepared);
  // Memory for the calls of a plan, which come one after the other; null when none asks for any.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> WorkspaceFor(const std::vector<Prepared>& launches);
  // Lets functions use as much shared memory and as large a cluster as their launches ask for.
  absl::Status Allow(const std::vector<Prepared>& launches);

  const CudaLibrary& cuda_;
  const CUdevice device_;
  const DeviceFacts facts_;
  const std::unique_ptr<Nvml> nvml_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<DeviceBuffer> flush_scratch_;
  std::unique_ptr<LibraryCalls> libraries_;  // made at the first call of one
  std::set<const PreparedCall*> warm_;       // calls that were made once
};

absl::Status CudaDevice::Open() {
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.PrimaryCtxRetain(&context_, device_),
                                 absl::StrCat("making a context on GPU ", device_, " (", facts_.model, ")")));
  RETURN_IF_ERROR(Select());
  return cuda_.ToStatus(cuda_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  cuda_.CtxSetCurrent(context_);
  libraries_.reset();
  flush_scratch_.reset();
  if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
  cuda_.CtxSetCurrent(nullptr);
  cuda_.PrimaryCtxRelease(device_);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes cannot be"));
  RETURN_IF_ERROR(Select());
  CUdeviceptr address = 0;
  const CUresult result = bytes > INT64_MAX - kPadding
                              ? CUDA_ERROR_OUT_OF_MEMORY
                              : cuda_.MemAlloc(&address, static_cast<size_t>(bytes + kPadding));
  RETURN_IF_ERROR(cuda_.ToStatus(result, absl::StrCat("allocating a buffer of ", bytes, " bytes")));
  return std::make_unique<CudaBuffer>(&cuda_, context_, address, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::View(DeviceBuffer& of, int64_t offset, int64_t bytes) {
  DIAPASON_CHECK(offset >= 0 && bytes >= 0 && offset % 512 == 0 && offset + bytes <= of.bytes());
  return std::make_unique<CudaBuffer>(nullptr, context_, GpuAddressOf(of) + offset, bytes);
}

absl::Status CudaDevice::CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.MemcpyHtoDAsync(GpuAddressOf(to), from, bytes, stream_), "copying to the GPU"));
  return Wait("copying to the GPU");
}

absl::Status CudaDevice::CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(
      cuda_.ToStatus(cuda_.MemcpyDtoHAsync(to, GpuAddressOf(from), bytes, stream_), "copying from the GPU"));
  return Wait("copying from the GPU");
}

absl::Status CudaDevice::Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes() && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.MemcpyDtoDAsync(GpuAddressOf(to), GpuAddressOf(from), bytes, stream_),
                                 "copying on the GPU"));
  return Wait("copying on the GPU");
}

absl::Status CudaDevice::CopyOn(void* stream, DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes() && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  return cuda_.ToStatus(
      cuda_.MemcpyDtoDAsync(GpuAddressOf(to), GpuAddressOf(from), bytes, static_cast<CUstream>(stream)),
      "copying on the GPU");
}

void* CudaDevice::AddressOf(const DeviceBuffer& buffer) const {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(GpuAddressOf(buffer)));
}

std::unique_ptr<DeviceBuffer> CudaDevice::Wrap(void* address, int64_t bytes) {
  return std::make_unique<CudaBuffer>(nullptr, context_, static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(address)),
                                      bytes);
}

absl::Status CudaDevice::Fill(DeviceBuffer& to, uint8_t value) {
  if (to.bytes() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(
      cuda_.ToStatus(cuda_.MemsetD8Async(GpuAddressOf(to), value, to.bytes(), stream_), "filling a buffer"));
  return Wait("filling a buffer");
}

absl::StatusOr<std::unique_ptr<Module>> CudaDevice::Load(const Program& program) {
  if (program.target.kind != TargetKind::kCuda)
    return absl::InvalidArgumentError(
        absl::StrCat("a program for target '", program.target.ToString(), "' cannot be loaded on a cuda device"));
  if (program.binary.empty()) return absl::InvalidArgumentError("loading a kernel binary: it is empty");
  RETURN_IF_ERROR(Select());
  // The driver's own words on what it does not like, cut by it to the size of the buffer.
  std::string log(4096, 0);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(static_cast<uintptr_t>(log.size() - 1))};
  CUmodule module = nullptr;
  const CUresult result = cuda_.ModuleLoadDataEx(&module, program.binary.c_str(), 2, options, values);
  log.resize(log.find('\0'));
  RETURN_IF_ERROR(cuda_.ToStatus(result, absl::StrCat("loading a kernel binary", log.empty() ? "" : ": ", log)));
  return std::make_unique<CudaModule>(cuda_, context_, module);
}

absl::StatusOr<Prepared> CudaDevice::Prepare(const Launch& launch) {
  Prepared prepared;
  prepared.kernel = launch.kernel;
  const Kernel& kernel = prepared.kernel;
  for (const DeviceBuffer* arg : launch.args) prepared.args.push_back(GpuAddressOf(*arg));
  if (kernel.library != nullptr) {
    RETURN_IF_ERROR(PrepareLibrary(*kernel.library, &prepared));
    return prepared;
  }
  RETURN_IF_ERROR(CheckLaunch(kernel));
  const CUresult result = cuda_.ModuleGetFunction(
      &prepared.function, static_cast<const CudaModule*>(launch.module)->get(), kernel.name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND)
    return absl::InvalidArgumentError(absl::StrCat("the kernel binary has no function '", kernel.name, "'"));
  RETURN_IF_ERROR(cuda_.ToStatus(result, absl::StrCat("finding kernel '", kernel.name, "'")));
  if (kernel.shared_bytes > facts_.max_shared_bytes)
    return absl::FailedPreconditionError(absl::StrCat("kernel '", kernel.name, "' needs ", kernel.shared_bytes,
                                                      " bytes of shared memory; ", facts_.model, " has ",
                                                      facts_.max_shared_bytes, " a block"));
  // Without the driver's help each kernel starts after the one before: its own wait is then over at once.
  if (cuda_.LaunchKernelEx == nullptr) prepared.kernel.overlap = false;
  if (kernel.cluster > 1 && cuda_.LaunchKernelEx == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(
        "kernel '", kernel.name, "' uses thread-block clusters, which need a driver of CUDA 11.8 or later"));
  if (kernel.shared_bytes > kMaxStaticSharedBytes) prepared.dynamic_shared = static_cast<unsigned>(kernel.shared_bytes);
  return prepared;
}

absl::Status CudaDevice::PrepareLibrary(const LibraryCall& call, Prepared* prepared) {
  if (libraries_ == nullptr) libraries_ = MakeCudaLibraryCalls(stream_);
  ASSIGN_OR_RETURN(prepared->library, libraries_->Prepare(call));
  if (warm_.count(prepared->library.get()) > 0) return absl::OkStatus();
  const LibraryCall::Operand result = call.Operands().back();
  ASSIGN_OR_RETURN(const auto scratch, Allocate(result.elements * BytesOf(result.dtype)));
  ASSIGN_OR_RETURN(const auto workspace, Allocate(prepared->library->workspace_bytes()));
  std::vector<CUdeviceptr> operands = prepared->args;
  operands.back() = GpuAddressOf(*scratch);
  RETURN_IF_ERROR(Call(*prepared->library, operands, workspace.get()));
  RETURN_IF_ERROR(Wait("calling a library"));
  warm_.insert(prepared->library.get());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::WorkspaceFor(const std::vector<Prepared>& launches) {
  int64_t bytes = 0;
  for (const Prepared& prepared : launches)
    if (prepared.library != nullptr) bytes = std::max(bytes, prepared.library->workspace_bytes());
  if (bytes == 0) return nullptr;
  return Allocate(bytes);
}

absl::Status CudaDevice::Allow(const std::vector<Prepared>& launches) {
  // One function may be launched several times with different needs: the largest counts.
  std::map<CUfunction, const Prepared*> largest;
  for (const Prepared& prepared : launches) {
    if (prepared.library != nullptr) continue;
    const std::string& name = prepared.kernel.name;
    if (prepared.kernel.cluster > kPortableCluster)
      RETURN_IF_ERROR(cuda_.ToStatus(
          cuda_.FuncSetAttribute(prepared.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
          absl::StrCat("allowing a cluster of ", prepared.kernel.cluster, " blocks for kernel '", name, "'")));
    const Prepared*& known = largest[prepared.function];
    if (known == nullptr || known->dynamic_shared < prepared.dynamic_shared) known = &prepared;
  }
  for (const auto& [function, prepared] : largest) {
    if (prepared->dynamic_shared == 0) continue;
    RETURN_IF_ERROR(cuda_.ToStatus(cuda_.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                          static_cast<int>(prepared->dynamic_shared)),
                                   absl::StrCat("allowing ", prepared->dynamic_shared,
                                                " bytes of shared memory for kernel '", prepared->kernel.name, "'")));
  }
  return absl::OkStatus();
}

// What a launch uses, by address: views of one buffer may overlap.
std::vector<MemoryRange> MemoryOf(const Launch& launch) {
  std::vector<MemoryRange> memory;
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const CUdeviceptr begin = GpuAddressOf(*launch.args[i]);
    memory.push_back({begin, begin + static_cast<uint64_t>(launch.args[i]->bytes()),
                      launch.writes.empty() || launch.writes[i],
                      launch.parts.empty() ? WrittenPart{} : launch.parts[i]});
  }
  return memory;
}

LaunchPaths PathsOf(const std::vector<Launch>& launches, int most) {
  // Calls of libraries have one stream and one workspace.
  const bool calls =
      std::any_of(launches.begin(), launches.end(), [](const Launch& l) { return l.kernel.library != nullptr; });
  if (most == 1 || calls) return InOrder(launches.size());
  std::vector<std::vector<MemoryRange>> memory;
  for (const Launch& launch : launches) memory.push_back(MemoryOf(launch));
  return PlacePaths(DependenciesOf(memory), most);
}

absl::StatusOr<std::vector<Prepared>> CudaDevice::PrepareAll(const std::vector<Launch>& launches) {
  RETURN_IF_ERROR(Select());
  std::vector<Prepared> all;
  all.reserve(launches.size());
  for (const Launch& launch : launches) {
    ASSIGN_OR_RETURN(Prepared prepared, Prepare(launch));
    all.push_back(std::move(prepared));
  }
  RETURN_IF_ERROR(Allow(all));
  return all;
}

absl::StatusOr<std::unique_ptr<LaunchTimer>> CudaDevice::MakeLaunchTimer(std::vector<Launch> launches) {
  ASSIGN_OR_RETURN(std::vector<Prepared> all, PrepareAll(launches));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> workspace, WorkspaceFor(all));
  auto plan = std::make_unique<CudaPlan>(cuda_, context_, stream_);
  RETURN_IF_ERROR(plan->CaptureTimed(std::move(all), std::move(workspace)));
  return std::make_unique<CudaLaunchTimer>(std::move(plan));
}

absl::StatusOr<std::unique_ptr<Plan>> CudaDevice::MakePlanOn(const std::vector<Launch>& launches, int most_paths) {
  ASSIGN_OR_RETURN(std::vector<Prepared> all, PrepareAll(launches));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> workspace, WorkspaceFor(all));
  auto plan = std::make_unique<CudaPlan>(cuda_, context_, stream_);
  RETURN_IF_ERROR(
      plan->Capture(std::move(all), ArgumentTable(launches), std::move(workspace), PathsOf(launches, most_paths)));
  return plan;
}

absl::Status CudaDevice::FlushCache() {
  if (flush_scratch_ == nullptr) {
    ASSIGN_OR_RETURN(flush_scratch_, Allocate(std::clamp<int64_t>(2 * facts_.l2_bytes, 32 << 20, 1 << 30)));
  }
  return Fill(*flush_scratch_, 1);
}

}  // namespace

absl::StatusOr<DeviceFacts> CudaFacts(const Target& target) {
  ASSIGN_OR_RETURN(const CudaLibrary* cuda, CudaLibrary::Get());
  ASSIGN_OR_RETURN(CUdevice device, FindDevice(*cuda, target));
  DeviceFacts facts = ReadFacts(*cuda, device, target);
  RETURN_IF_ERROR(CheckArch(target, facts));
  return facts;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const Target& target) {
  DIAPASON_CHECK(target.kind == TargetKind::kCuda);
  ASSIGN_OR_RETURN(DeviceFacts facts, CudaFacts(target));
  ASSIGN_OR_RETURN(const CudaLibrary* cuda, CudaLibrary::Get());
  ASSIGN_OR_RETURN(CUdevice id, FindDevice(*cuda, target));
  auto device = std::make_unique<CudaDevice>(*cuda, id, std::move(facts));
  RETURN_IF_ERROR(device->Open());
  return device;
}

int CountCudaDevices() {
  absl::StatusOr<const CudaLibrary*> cuda = CudaLibrary::Get();
  int count = 0;
  return cuda.ok() && (*cuda)->DeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

}  // namespace diapason
