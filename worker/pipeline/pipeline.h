// Builds and runs measurement requests on this host: builder processes shared by all devices and one runner process a
// device. Builds of later requests continue while earlier ones run.
//
// One thread, started by Start, owns all processes and every deadline: a request that was submitted always gets its
// result, whatever the processes do. Faults and what they become (compiler/runtime/outcome.h):
//
//   a builder or runner            | outcome
//   misses its deadline            | build_timeout, run_timeout
//   dies of a signal, or exits     | build_crash, run_crash
//   reaches its limit of memory    | out_of_memory; also when the kernel's killer took it
//   is killed from outside         | infrastructure; so also when it stood still, stopped from outside
//   cannot be started              | infrastructure, after three attempts
//   dies while loading a program,  | the program is tried once more in a fresh process: the fault may
//     after it had run others      |   be the one of the program before
//
// Health. A device whose runner hung or reported the device lost is probed before it gets other work: a small kernel of
// our own runs on it and is checked. After two failed probes in a row, or when its runner does not start three times,
// the device is in quarantine: what waits for it is given back, and it is probed again later and later. With
// `reference_interval_seconds` the same kernel is also timed now and then, so that a device that is slower than its
// peers is noticed (tracker.proto, DeviceStatistics).
//
// While a kernel that computes on the host's own cores (cpu, opencl) is timed, the builders are stopped, and their
// clocks with them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/process/limits.h"
#include "worker/process/sandbox.h"

namespace diapason {

namespace v1 {
class DeviceDescription;
class DeviceStatistics;
class DeviceStatus;
class MeasureRequest;
class MeasureResult;
class WorkerStatistics;
}  // namespace v1

struct PipelineOptions {
  // Of the program that is executed for builders and runners; the runner's are followed by its device's target.
  std::string program_path = "/proc/self/exe";
  std::vector<std::string> builder_args{"diapason", "internal-builder", "--fd", "3"};
  std::vector<std::string> runner_args{"diapason", "internal-runner", "--fd", "3", "--target"};

  std::vector<std::string> devices;  // targets: "cpu", "cuda -device=1"
  int builders = 0;                  // 0: as many as there are cores
  int jobs_per_builder = 500;        // a builder is replaced after so many, in case the compiler loses memory
  // of address space, compilers that it starts each again; 0: half of the host's memory, 4 GiB at least
  int64_t builder_memory_bytes = 0;
  int64_t runner_memory_bytes = 0;  // as above; not for cuda, which reserves more than there is
  std::string scratch_base;         // folder for scratch folders; empty: $TMPDIR or /tmp
  // Names of variables that builders and runners get besides what compilers and drivers need (base/environment.h).
  std::vector<std::string> keep_environment;
  // kAuto does without where the host has none, or where a runner starts only outside.
  SandboxMode sandbox = SandboxMode::kOff;
  bool quiet_timing = true;  // stop builders while the host's cores are timed

  RequestLimits limits;

  double start_timeout_seconds = 60;  // of a process
  double build_timeout_seconds = 30;  // where a request names none
  double run_timeout_seconds = 10;
  double verify_timeout_seconds = 60;
  double max_timeout_seconds = 600;  // requests get no more

  double probe_timeout_seconds = 10;      // of a health probe: run and check
  double first_probe_again_seconds = 30;  // in quarantine; doubled up to 10 minutes
  double reference_interval_seconds = 0;  // between timings of the reference kernel; 0: never
};

class Pipeline {
 public:
  // Called from the pipeline's thread, exactly once for each request. Must not block or call Stop.
  using Done = std::function<void(const v1::MeasureResult&)>;

  // Starts the processes and waits until each device has answered. Unavailable, naming the device and the reason, when
  // one cannot be opened, or why there is no sandbox; InvalidArgument for a target that does not parse or an empty
  // list.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Start(PipelineOptions options);
  // Stops.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // As they answered when they were started. Names are "cpu:0", "cuda:1".
  const std::vector<v1::DeviceDescription>& devices() const;
  // What the processes run in.
  const Sandbox& sandbox() const;

  // The calls below are safe from any thread.

  // Measures on device number `device`. Returns a handle for Cancel.
  uint64_t Submit(int device, const v1::MeasureRequest& request, Done done);
  // The request gets a `cancelled` result at once, unless it has one; what was begun for it is left to end unseen.
  void Cancel(uint64_t handle, const std::string& reason);
  v1::WorkerStatistics Statistics() const;
  std::vector<v1::DeviceStatus> DeviceStates() const;
  std::vector<v1::DeviceStatistics> DeviceCounts() const;
  // Requests without a result, on a device.
  int Unfinished(int device) const;
  int builders() const;

  // Kills all processes, removes all scratch files and gives every request without a result a `cancelled` one.
  // Idempotent.
  void Stop();

 private:
  class Impl;
  explicit Pipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
