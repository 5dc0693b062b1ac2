#include "compiler/runtime/cuda/plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/cuda/memory.h"

namespace diapason {
namespace {

std::vector<void*> ParametersOf(PreparedLaunch& prepared) {
  std::vector<void*> parameters;
  for (CUdeviceptr& arg : prepared.args) parameters.push_back(&arg);
  for (EncodedTensorMap& map : prepared.maps) parameters.push_back(&map);
  return parameters;
}

}  // namespace

absl::Status CallLibrary(PreparedCall& call, const std::vector<CUdeviceptr>& operands, const DeviceBuffer* workspace) {
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); };
  std::vector<void*> pointers;
  for (CUdeviceptr operand : operands) pointers.push_back(pointer(operand));
  return call.Enqueue(pointers, workspace != nullptr ? pointer(GpuAddressOf(*workspace)) : nullptr);
}

CudaPlan::~CudaPlan() {
  cuda_.CtxSetCurrent(context_);
  if (graph_ != nullptr) cuda_.GraphExecDestroy(graph_);
  if (captured_ != nullptr) cuda_.GraphDestroy(captured_);
  if (start_ != nullptr) cuda_.EventDestroy(start_);
  if (end_ != nullptr) cuda_.EventDestroy(end_);
  for (CUevent event : events_) cuda_.EventDestroy(event);
  for (CUstream stream : streams_) cuda_.StreamDestroy(stream);
  if (prefetch_stream_ != nullptr) cuda_.StreamDestroy(prefetch_stream_);
}

absl::Status CudaPlan::Launch(PreparedLaunch& prepared, CUstream stream) {
  if (prepared.library != nullptr) return CallLibrary(*prepared.library, prepared.args, workspace_.get());
  std::vector<void*> params = ParametersOf(prepared);
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

absl::Status CudaPlan::RecordOrder(CUstream stream, CUevent* event) {
  RETURN_IF_ERROR(Check(cuda_.EventCreate(event, CU_EVENT_DISABLE_TIMING), "making an event"));
  events_.push_back(*event);
  return Check(cuda_.EventRecord(*event, stream), "recording an event");
}

absl::Status CudaPlan::LaunchPrefetches(int ended, CUevent event) {
  const size_t first = launches_.size() - prefetch_after_.size();
  for (size_t i = 0; i < prefetch_after_.size(); ++i) {
    if (prefetch_after_[i] != ended) continue;
    RETURN_IF_ERROR(WaitFor(prefetch_stream_, event));
    RETURN_IF_ERROR(Launch(launches_[first + i], prefetch_stream_));
    launches_[first + i].node = LastNode(prefetch_stream_);
  }
  return absl::OkStatus();
}

// Streams of other paths, and that of prefetches, join the capture by waiting for an event of it, and are waited for at
// its end.
absl::Status CudaPlan::LaunchAll(const LaunchPaths& paths) {
  const auto stream_of = [&](int path) { return path == 0 ? stream_ : streams_[path - 1]; };
  const size_t count = launches_.size() - prefetch_after_.size();
  std::vector<bool> waited_for(count, false), joined(paths.count, false);
  for (const PathStep& step : paths.steps)
    for (int launch : step.waits) waited_for[launch] = true;
  for (size_t path = 1; path < paths.last.size(); ++path) waited_for[paths.last[path]] = true;
  for (int after : prefetch_after_)
    if (after >= 0) waited_for[after] = true;
  std::vector<CUevent> done(count, nullptr);
  CUevent begin = nullptr;
  if (paths.count > 1 || !prefetch_after_.empty()) RETURN_IF_ERROR(RecordOrder(stream_, &begin));
  RETURN_IF_ERROR(LaunchPrefetches(-1, begin));
  for (size_t i = 0; i < count; ++i) {
    const PathStep& step = paths.steps[i];
    const CUstream stream = stream_of(step.path);
    if (step.path > 0 && !joined[step.path] && step.waits.empty()) RETURN_IF_ERROR(WaitFor(stream, begin));
    joined[step.path] = true;
    for (int launch : step.waits) RETURN_IF_ERROR(WaitFor(stream, done[launch]));
    // Only the kernel that a kernel follows at once can let it start early.
    if (paths.count > 1 && !step.alone) launches_[i].kernel.overlap = false;
    RETURN_IF_ERROR(Launch(launches_[i], stream));
    if (launches_[i].library == nullptr) launches_[i].node = LastNode(stream);
    if (waited_for[i]) RETURN_IF_ERROR(RecordOrder(stream, &done[i]));
    RETURN_IF_ERROR(LaunchPrefetches(static_cast<int>(i), done[i]));
  }
  for (size_t path = 1; path < paths.last.size(); ++path) RETURN_IF_ERROR(WaitFor(stream_, done[paths.last[path]]));
  if (prefetch_after_.empty()) return absl::OkStatus();
  CUevent fetched = nullptr;
  RETURN_IF_ERROR(RecordOrder(prefetch_stream_, &fetched));
  return WaitFor(stream_, fetched);
}

absl::Status CudaPlan::LaunchTimed(std::vector<PreparedLaunch>& launches) {
  const auto record = [&] {
    CUevent event = nullptr;
    RETURN_IF_ERROR(Check(cuda_.EventCreate(&event, CU_EVENT_DEFAULT), "making an event"));
    events_.push_back(event);
    return Check(cuda_.EventRecordWithFlags(event, stream_, CU_EVENT_RECORD_EXTERNAL), "recording an event");
  };
  // Nothing is between the first two: what the events themselves take.
  RETURN_IF_ERROR(record());
  RETURN_IF_ERROR(record());
  for (PreparedLaunch& prepared : launches) {
    prepared.kernel.overlap = false;
    RETURN_IF_ERROR(Launch(prepared, stream_));
    RETURN_IF_ERROR(record());
  }
  return absl::OkStatus();
}

absl::Status CudaPlan::Capture(PlanLaunches launches, std::unique_ptr<DeviceBuffer> workspace) {
  launches_ = std::move(launches.launches);
  arguments_ = std::move(launches.arguments);
  workspace_ = std::move(workspace);
  for (PrefetchLaunch& prefetch : launches.prefetches) {
    for (size_t i = 0; i < prefetch.buffers.size(); ++i)
      arguments_.Add(*prefetch.buffers[i], {launches_.size(), 2 * i});
    launches_.push_back(std::move(prefetch.launch));
    prefetch_after_.push_back(prefetch.after);
    prefetched_bytes_ += prefetch.bytes;
  }
  RETURN_IF_ERROR(MakeStreams(std::max(launches.paths.count, 1) - 1));
  if (!prefetch_after_.empty())
    RETURN_IF_ERROR(Check(cuda_.StreamCreate(&prefetch_stream_, CU_STREAM_NON_BLOCKING), "making a stream"));
  RETURN_IF_ERROR(Check(cuda_.EventCreate(&start_, CU_EVENT_DEFAULT), "making an event"));
  RETURN_IF_ERROR(Check(cuda_.EventCreate(&end_, CU_EVENT_DEFAULT), "making an event"));
  return CaptureGraph([&] { return LaunchAll(launches.paths); });
}

absl::Status CudaPlan::CaptureTimed(std::vector<PreparedLaunch> launches, std::unique_ptr<DeviceBuffer> workspace) {
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
      std::any_of(launches_.begin(), launches_.end(), [](const PreparedLaunch& p) { return p.node != nullptr; });
  if (made.ok() && named)
    captured_ = graph;
  else if (graph != nullptr)
    cuda_.GraphDestroy(graph);
  return made;
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
      PreparedLaunch& prepared = launches_[place.launch];
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
absl::Status CudaPlan::Update(PreparedLaunch& prepared) {
  ASSIGN_OR_RETURN(prepared.maps, EncodeTensorMaps(cuda_, prepared.kernel, prepared.args));
  std::vector<void*> arguments = ParametersOf(prepared);
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

}  // namespace diapason
