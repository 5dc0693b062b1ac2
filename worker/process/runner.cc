#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "diapason/v1/process.pb.h"
#include "worker/process/candidate.h"
#include "worker/process/child_process.h"
#include "worker/process/convert.h"
#include "worker/process/network_runner.h"
#include "worker/process/processes.h"

namespace diapason {
namespace {

// The exit is expected: the agent asked for none, but knows from the reply.
constexpr int kExitDeviceLost = 87;

void TellStage(int fd, MeasureStage stage, bool quiet) {
  v1::ProcessMessage message;
  message.mutable_progress()->set_stage(StageName(stage));
  message.mutable_progress()->set_await_go(quiet);
  if (!WriteMessage(fd, message).ok() || !quiet) return;
  (void)ReadMessage(fd, message);  // Go; an agent that is gone shows at the reply
}

// A runner's device with the number of threads that a program's target asks for, opened anew when that changes.
class RunnerDevice {
 public:
  RunnerDevice(Target target, std::unique_ptr<Device> device, const DeviceOpener& open, const SourceCompiler& compile)
      : target_(std::move(target)),
        open_(open),
        compile_(compile),
        device_(std::move(device)),
        runner_(std::make_unique<CandidateRunner>(*device_, compile)),
        network_(std::make_unique<NetworkRunner>(*device_)) {}

  // After this, until the next: the runners of the device.
  CandidateRunner& runner() { return *runner_; }
  NetworkRunner& network() { return *network_; }

  absl::Status Use(const std::string& target_text) {
    ASSIGN_OR_RETURN(Target wanted, Target::Parse(target_text));
    if (wanted.kind == TargetKind::kCpu && wanted.num_cores != target_.num_cores) {
      Target changed = target_;
      changed.num_cores = wanted.num_cores;
      ASSIGN_OR_RETURN(std::unique_ptr<Device> device, open_(changed));
      network_ = std::make_unique<NetworkRunner>(*device);
      runner_ = std::make_unique<CandidateRunner>(*device, compile_);
      device_ = std::move(device);
      target_ = changed;
    }
    return absl::OkStatus();
  }

 private:
  Target target_;
  const DeviceOpener& open_;
  const SourceCompiler& compile_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<CandidateRunner> runner_;
  std::unique_ptr<NetworkRunner> network_;
};

v1::RunReply RunOn(RunnerDevice& device, const v1::RunJob& job, const CandidateRunner::StageBegins& stage_begins) {
  const absl::Status there = device.Use(job.target());
  if (there.ok())
    return job.has_network() ? device.network().Run(job, stage_begins) : device.runner().Run(job, stage_begins);
  v1::RunReply reply;
  SetError(ErrorKind::kInfrastructure, MeasureStage::kLoad, std::string(there.message()), *reply.mutable_error());
  return reply;
}

bool TellReady(int fd, const absl::StatusOr<std::unique_ptr<Device>>& device) {
  v1::ProcessMessage message;
  if (device.ok()) {
    ToProto((*device)->facts(), *message.mutable_ready()->mutable_facts());
  } else {
    message.mutable_ready()->set_failure(std::string(device.status().message()));
  }
  return WriteMessage(fd, message).ok() && device.ok();
}

}  // namespace

int RunnerMain(int fd, const Target& target, const DeviceOpener& open, const SourceCompiler& compile) {
  PrepareChildProcess(fd);
  v1::ProcessMessage message;
  if (!ReadMessage(fd, message).ok() || !message.has_start()) return 1;
  LimitMemory(message.start().memory_limit_bytes());
  absl::StatusOr<std::unique_ptr<Device>> device = open(target);
  if (!TellReady(fd, device)) return 1;
  RunnerDevice runner(target, *std::move(device), open, compile);
  while (ReadMessage(fd, message).ok() && message.has_run()) {
    TruncateOutput();
    v1::ProcessMessage reply;
    *reply.mutable_ran() =
        RunOn(runner, message.run(), [fd](MeasureStage stage, bool quiet) { TellStage(fd, stage, quiet); });
    bool lost = reply.ran().device_lost();
    if (!WriteMessage(fd, reply).ok()) return 1;
    if (lost) _exit(kExitDeviceLost);  // destructors would only talk to a device that does not answer
  }
  return 0;
}

}  // namespace diapason
