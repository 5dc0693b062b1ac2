// Launches on a GPU, captured into a CUDA graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "compiler/runtime/argument_table.h"
#include "compiler/runtime/cuda/library.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/runtime/cuda/tensor_maps.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/launch_paths.h"

namespace diapason {

// A launch with the driver's function found and allowed what it needs.
struct PreparedLaunch {
  CUfunction function = nullptr;
  Kernel kernel;
  unsigned dynamic_shared = 0;
  std::vector<CUdeviceptr> args;
  std::vector<EncodedTensorMap> maps;     // of Kernel::tensor_maps, at the addresses of `args`
  std::shared_ptr<PreparedCall> library;  // not null: this call is made, and no function launched
  CUgraphNode node = nullptr;  // of the captured graph; null for calls of libraries, and where it is not known
  bool stale = false;          // the instantiated graph has other arguments for it than `args`
};

// A launch beside the others that brings memory to the cache (prefetch.h).
struct PrefetchLaunch {
  PreparedLaunch launch;
  int after = -1;                            // the launch that has ended by then; -1: none
  std::vector<const DeviceBuffer*> buffers;  // buffer i is argument 2 * i
  int64_t bytes = 0;
};

// What a plan launches.
struct PlanLaunches {
  std::vector<PreparedLaunch> launches;
  ArgumentTable arguments;
  LaunchPaths paths;
  std::vector<PrefetchLaunch> prefetches;  // in order of `after`
};

// Calls a library with operands and workspace (null: none) at these addresses.
absl::Status CallLibrary(PreparedCall& call, const std::vector<CUdeviceptr>& operands, const DeviceBuffer* workspace);

class CudaPlan : public Plan {
 public:
  CudaPlan(const CudaLibrary& cuda, CUcontext context, CUstream stream)
      : cuda_(cuda), context_(context), stream_(stream) {}
  ~CudaPlan() override;
  // Captures the launches into a graph and instantiates it. To be called once. `workspace` is for the calls of
  // libraries, all of them in turn; null without such calls.
  absl::Status Capture(PlanLaunches launches, std::unique_ptr<DeviceBuffer> workspace);
  // The same in order, for SecondsOfLaunches: events of the graph take the time between launches, none of which starts
  // early.
  absl::Status CaptureTimed(std::vector<PreparedLaunch> launches, std::unique_ptr<DeviceBuffer> workspace);
  // Of the last run, by launch. REQUIRES: captured by CaptureTimed, and run.
  absl::StatusOr<std::vector<double>> SecondsOfLaunches();
  absl::Status Run() override;
  absl::Status Enqueue(void* stream) override;
  absl::StatusOr<double> Time(int64_t times) override;
  bool CanRedirect(const DeviceBuffer& buffer) const override;
  absl::Status Redirect(absl::Span<const Redirection> redirections) override;
  int paths() const override { return static_cast<int>(streams_.size()) + 1; }
  int64_t prefetched_bytes() const override { return prefetched_bytes_; }

 private:
  absl::Status Launch(PreparedLaunch& prepared, CUstream stream);
  // The node that the last launch into a stream that is captured has become; null where the driver does not tell.
  CUgraphNode LastNode(CUstream stream) const;
  // Gives the instantiated graph the arguments of a launch.
  absl::Status Update(PreparedLaunch& prepared);
  absl::Status LaunchAll(const LaunchPaths& paths);
  // Launches the prefetches that come behind launch `ended` (-1: at the start), by whose event they wait.
  absl::Status LaunchPrefetches(int ended, CUevent event);
  absl::Status RecordOrder(CUstream stream, CUevent* event);
  absl::Status WaitFor(CUstream stream, CUevent event) {
    return Check(cuda_.StreamWaitEvent(stream, event, 0), "waiting for an event");
  }
  absl::Status LaunchTimed(std::vector<PreparedLaunch>& launches);
  // A graph of what `launch_all` puts into the stream. It is not uploaded ahead (cuGraphUpload): until such a graph has
  // been launched, launches of every other graph take more or less time than they do otherwise (docs/lab-notes.md).
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
  // Empty in a plan that takes the time of launches. Those of prefetches come behind those that compute.
  std::vector<PreparedLaunch> launches_;
  std::vector<int> prefetch_after_;  // of the prefetches: the launch behind which each comes
  int64_t prefetched_bytes_ = 0;
  ArgumentTable arguments_;
  std::vector<size_t> stale_;  // launches with `stale`
  std::unique_ptr<DeviceBuffer> workspace_;
  CUevent start_ = nullptr, end_ = nullptr;
  std::vector<CUstream> streams_;  // of the paths behind the first, whose stream is the device's
  CUstream prefetch_stream_ = nullptr;
  std::vector<CUevent> events_;  // that order paths while they are captured, or that take times
};

// The times of the launches of a plan that CaptureTimed has made.
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

}  // namespace diapason
