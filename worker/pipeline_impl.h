// The inside of Pipeline, shared by its .cc files: pipeline.cc (the thread and the public calls), pipeline_builders.cc
// and pipeline_runners.cc (what happens at each kind of process), pipeline_probe.cc (the health of devices).
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "compiler/runtime/outcome.h"
#include "compiler/tensor/target.h"
#include "diapason/v1/process.pb.h"
#include "worker/build_cache.h"
#include "worker/pipeline.h"
#include "worker/process_slot.h"
#include "worker/scratch.h"

namespace diapason {

class Pipeline::Impl {
 public:
  // `no_sandbox`: why there is none although it is wanted; empty: looks for one.
  explicit Impl(PipelineOptions options, std::string no_sandbox = "")
      : options_(std::move(options)), sandbox_(Sandbox::None(std::move(no_sandbox))) {}
  ~Impl() {
    Stop();
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  absl::Status Start();
  uint64_t Submit(int device, const v1::MeasureRequest& request, Done done);
  void Cancel(uint64_t handle, const std::string& reason);
  void Stop();
  const std::vector<v1::DeviceDescription>& devices() const { return descriptions_; }
  const Sandbox& sandbox() const { return sandbox_; }
  int builders() const { return options_.builders; }
  v1::WorkerStatistics Statistics() const;
  std::vector<v1::DeviceStatus> DeviceStates() const;
  std::vector<v1::DeviceStatistics> DeviceCounts() const;
  int Unfinished(int device) const;

 private:
  // Failures of a process to start, in a row, after which what waits for it is given back.
  static constexpr int kMaxStartFailures = 3;

  // The programs of a network that is being checked.
  struct NetworkBuild {
    std::vector<std::shared_ptr<const std::string>> programs;   // by program of the plan; null: not built yet
    std::vector<std::shared_ptr<const std::string>> reference;  // by task; null for tasks that no program is of, too
    size_t missing = 0;
  };

  // One request on its way through.
  struct Job {
    uint64_t handle = 0;
    int device = 0;
    v1::MeasureRequest request;
    Pipeline::Done done;
    std::string target, shared_target;                      // with the device's own number, and without
    v1::MeasureResult result;                               // filled in as stages end
    std::shared_ptr<const std::string> program, reference;  // shared with the cache; null: not built yet
    double build_seconds = 0;
    bool load_retried = false;
    bool finished = false;                  // its result was given
    bool probe = false;                     // ours: the reference program as candidate, its end is for ProbeEnded
    std::unique_ptr<NetworkBuild> network;  // of a request that checks one

    bool wants_reference() const {
      if (request.has_network()) return false;  // it has its own
      return request.mode() == v1::MEASURE_MODE_VERIFY || request.mode() == v1::MEASURE_MODE_TIME_AND_VERIFY;
    }
  };
  using JobPtr = std::shared_ptr<Job>;  // shared: in queues, in places and in the table of handles at once

  // The reference program of a workload for a target, while it is built for all requests that are verified.
  struct ReferenceBuild {
    std::string key;
    std::vector<JobPtr> waiting;
  };
  using ReferencePtr = std::shared_ptr<ReferenceBuild>;

  struct BuildTask {
    JobPtr job;              // the candidate's program, or the request that first asked for the reference
    ReferencePtr reference;  // null for a candidate
    // Of a network, one of the two: a program of the plan, or the reference program of a task.
    int network_program = -1, network_task = -1;
    bool of_network() const { return network_program >= 0 || network_task >= 0; }
  };

  struct BuilderPlace {
    std::unique_ptr<ProcessSlot> slot;
    std::optional<BuildTask> task;
    MeasureStage stage = MeasureStage::kInstantiate;
    double timeout = 0;
    int start_failures = 0;
  };

  struct RunnerPlace {
    std::unique_ptr<ProcessSlot> slot;
    Target target;
    v1::DeviceDescription description;
    v1::DeviceState state = v1::DEVICE_STATE_RESTARTING;
    std::string state_text;
    std::deque<JobPtr> waiting;
    JobPtr job;
    MeasureStage stage = MeasureStage::kLoad;
    double timeout = 0;
    bool holds_quiet = false;  // builders are stopped for it
    std::string start_failure;
    // Health.
    bool suspect = false;  // to be probed before other work
    int failed_probes = 0;
    int quarantines = 0;  // in a row: how often it was found sick again
    JobPtr probe;         // being built, waiting or run
    Instant probe_at{};   // suspects: not before; others: when the reference is due
    double reference_seconds = 0;
    v1::DeviceStatistics counts;
  };

  struct Command {
    JobPtr submitted;  // or
    uint64_t cancelled = 0;
    std::string reason;
  };

  // Before the thread.
  absl::Status MakePlaces();
  // The thread.
  void Loop();
  void WaitForEvents();
  void TakeCommands();
  void Wake();
  void Accept(const JobPtr& job);
  void CheckStarted();

  void OnBuilder(BuilderPlace& place, const SlotEvent& event);
  void OnBuilt(BuilderPlace& place, v1::BuildReply& reply);
  void OnBuilderLost(BuilderPlace& place, const SlotEvent& loss);
  void FailBuild(const BuildTask& task, ErrorKind kind, MeasureStage stage, const std::string& text);
  void GiveUpBuildsIfNoBuilder(const std::string& text);
  void OnRunner(RunnerPlace& place, const SlotEvent& event, Instant now);
  void OnRunnerReady(RunnerPlace& place);
  void OnRunnerProgress(RunnerPlace& place, const v1::ProcessProgress& progress, Instant now);
  void OnRan(RunnerPlace& place, v1::RunReply& reply, Instant now);
  void OnRunnerLost(RunnerPlace& place, const SlotEvent& loss, Instant now);
  void OnRunnerStartFailure(RunnerPlace& place, const SlotEvent& failure);
  void CountRun(RunnerPlace& place, bool failed);

  // Begins the probes that are due.
  void BeginProbes(Instant now);
  void Suspect(RunnerPlace& place, const std::string& why, Instant now);
  void ProbeEnded(const JobPtr& probe, Instant now);
  void Quarantine(RunnerPlace& place, const std::string& why, Instant now);
  std::optional<Instant> NextProbe(const RunnerPlace& place) const;

  // pipeline_network.cc
  void AcceptNetwork(const JobPtr& job);
  void FillNetworkBuild(const BuildTask& task, v1::BuildJob& build) const;
  void TakeNetworkProgram(const BuildTask& task, const std::shared_ptr<const std::string>& program);
  void FillNetworkRun(const Job& job, v1::RunJob& run) const;
  std::string NetworkTaskName(const BuildTask& task) const;

  void BeginBuilds(Instant now);
  // All that what is built depends on.
  v1::BuildJob BuildJobOf(const BuildTask& task) const;
  std::string BuildKey(const BuildTask& task) const { return BuildJobOf(task).SerializeAsString(); }
  void TakeBuilt(const BuildTask& task, const BuiltProgram& built);
  void NoteBuilt(Job& job);
  void BeginRuns(Instant now);
  void BeginRun(RunnerPlace& place, JobPtr job, Instant now);
  void WantReference(const JobPtr& job);
  void RunIfBuilt(const JobPtr& job);
  void SetQuiet(RunnerPlace& place, bool quiet, Instant now);
  void NoteBest(const Job& job);
  std::optional<double> BestFor(const Job& job) const;
  // Candidates on devices of one model are compared with the best of all of them.
  std::string RaceKey(const Job& job) const {
    return descriptions_[job.device].facts().model() + "\n" + job.shared_target + "\n" + job.request.workload();
  }

  void Fail(const JobPtr& job, ErrorKind kind, MeasureStage stage, const std::string& text);
  void Finish(const JobPtr& job);
  void Answer();
  void Publish();
  double Timeout(double wanted, double otherwise) const {
    return std::min(wanted > 0 ? wanted : otherwise, options_.max_timeout_seconds);
  }

  PipelineOptions options_;
  Sandbox sandbox_;                                  // constant after Start
  std::vector<v1::DeviceDescription> descriptions_;  // constant after Start
  std::vector<Target> targets_;
  const Instant started_at_ = std::chrono::steady_clock::now();
  int wake_fd_ = -1;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerStatistics statistics_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::DeviceStatus> device_states_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::DeviceStatistics> device_counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> unfinished_ ABSL_GUARDED_BY(mutex_);

  // Of the thread alone. Places go before the folder that their processes use.
  std::unique_ptr<ScratchFolder> scratch_;
  std::vector<std::unique_ptr<BuilderPlace>> builders_;
  std::vector<std::unique_ptr<RunnerPlace>> runners_;
  std::map<uint64_t, JobPtr> jobs_;  // without a result
  std::vector<JobPtr> answers_;      // with a result that was not given out yet
  std::deque<BuildTask> builds_;
  std::vector<ReferencePtr> references_;
  BuildCache built_{size_t{256} << 20};
  std::map<std::string, double> best_;
  int quiet_holders_ = 0;
  v1::WorkerStatistics counts_;  // what is counted and not computed
};

// "3 s", for error texts.
std::string SecondsText(double seconds);
// "text: detail", or only the text when there is none.
std::string WithDetail(const std::string& text, const std::string& detail);

}  // namespace diapason
