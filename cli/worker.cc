// diapason worker: measures on this host's devices what a tracker hands out.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/device_names.h"
#include "cli/flags.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "worker/agent/agent.h"

namespace diapason {
namespace {

struct WorkerFlags {
  ServiceFlags service;
  std::string tracker, devices, name, labels, scratch;
  int64_t builders = 0;
  double drain = 30, reference_interval = 600;
  std::string sandbox;  // empty: not given
  std::vector<std::string> keep_environment;
  // Of requests; in the units of the flags.
  int64_t max_request_mib = RequestLimits().bytes >> 20, max_nodes = RequestLimits().nodes;
  int64_t max_steps = RequestLimits().steps, max_iterations = RequestLimits().iterations;
  double max_tensor_gib = static_cast<double>(RequestLimits().tensor_bytes >> 30);
  double max_process_gib = 0;
};

constexpr double kGib = int64_t{1} << 30;

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(const std::string& text) {
  ASSIGN_OR_RETURN(const auto pairs, ParsePairs("--labels", text));
  return std::map<std::string, std::string>(pairs.begin(), pairs.end());
}

absl::StatusOr<AgentOptions> OptionsFor(const WorkerFlags& flags) {
  AgentOptions options;
  options.tracker = flags.tracker;
  options.name = options.worker_id = flags.name;
  ASSIGN_OR_RETURN(options.labels, ParseLabels(flags.labels));
  ASSIGN_OR_RETURN(options.pipeline.devices, DeviceTargets(flags.devices));
  options.pipeline.builders = static_cast<int>(flags.builders);
  options.pipeline.scratch_base = flags.scratch;
  options.pipeline.sandbox = ParseSandboxMode(flags.sandbox).value_or(SandboxMode::kAuto);
  options.pipeline.keep_environment = flags.keep_environment;
  options.pipeline.limits = {flags.max_request_mib << 20, flags.max_nodes, flags.max_steps, flags.max_iterations,
                             static_cast<int64_t>(flags.max_tensor_gib * kGib)};
  options.pipeline.builder_memory_bytes = options.pipeline.runner_memory_bytes =
      static_cast<int64_t>(flags.max_process_gib * kGib);
  options.pipeline.reference_interval_seconds = flags.reference_interval;
  return options;
}

absl::Status RunWorker(const WorkerFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const auto credentials, DialWith("--tracker", flags.tracker, flags.service.security));
  ASSIGN_OR_RETURN(AgentOptions options, OptionsFor(flags));
  options.credentials = credentials;
  StartLog(flags.service);
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerAgent> agent, WorkerAgent::Start(std::move(options)));
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(flags.service, [&agent] { return agent->Metrics(); }));
  session.out << "worker measures on " << Count(agent->pipeline_devices().size(), "device") << ":";
  for (const std::string& device : agent->pipeline_devices()) session.out << " " << device;
  session.out << "\n" << std::flush;
  absl::Status refused;
  WaitForStop([&] {
    refused = agent->Refusal();
    return !refused.ok();
  });
  if (refused.ok()) {
    LogEvent(LogLevel::kInfo, "worker_drains", {});
    const absl::Status drained = agent->Drain(flags.drain);
    if (!drained.ok()) LogEvent(LogLevel::kWarning, "worker_gives_back", {{"why", std::string(drained.message())}});
  }
  agent->Stop();
  SetLogLevel(LogLevel::kNone);
  return refused;
}

// Past them a request is an error, whoever sent it.
void AddLimitFlags(CLI::App* command, WorkerFlags* flags) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const std::string group = "Limits of what is measured";
  AddWhole(command, "--max-request-mib", &flags->max_request_mib, {1, 64},
           "Serialized size of a request in MiB (default 16)")
      ->group(group);
  AddWhole(command, "--max-nodes", &flags->max_nodes, {1, 1 << 20},
           "Nodes of a program's expressions (default 1048576)")
      ->group(group);
  AddWhole(command, "--max-steps", &flags->max_steps, {0, 1 << 20}, "Steps of a schedule (default 1024)")->group(group);
  AddWhole(command, "--max-iterations", &flags->max_iterations, {1, kMost},
           "Iterations of a stage's loops (default 10^15)")
      ->group(group);
  AddNumber(command, "--max-tensor-gib", &flags->max_tensor_gib, 0,
            "GiB of a program's tensors, and of the buffers of its kernels (default 64)")
      ->group(group);
  AddNumber(command, "--max-process-gib", &flags->max_process_gib, 0,
            "GiB of memory that a builder, a compiler or a runner may allocate; not applied to runners of cuda, which "
            "reserve more than there is (default: half of the host's, 4 at least)")
      ->group(group);
}

}  // namespace

void AddWorker(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("worker", "Run measurements of a tracker on this host's devices");
  command->footer(
      "On Ctrl-C or SIGTERM the worker accepts no more work, finishes what it has begun and exits; a second one stops "
      "it at once. If the tracker does not answer, the worker retries forever.");
  auto flags = std::make_shared<WorkerFlags>();
  AddTrackerFlag(command, &flags->tracker);
  command
      ->add_option("--devices", flags->devices,
                   "Devices to measure on, for example cpu or opencl:0 or cuda:0,cuda:1 or cuda:*")
      ->required()
      ->type_name("LIST");
  AddWhole(command, "--builders", &flags->builders, {1, 1024},
           "Number of processes that compile (default: one per core)");
  command->add_option("--labels", flags->labels, "Labels that tuners can select by, for example rack=a,room=2")
      ->type_name("K=V,...");
  command
      ->add_option("--name", flags->name,
                   "Name, unique in the fleet (default: host name and process id); a worker that is restarted under "
                   "its name replaces the previous one at once")
      ->type_name("NAME");
  command->add_option("--scratch", flags->scratch, "Folder for scratch files (default: $TMPDIR or /tmp)")
      ->type_name("DIR");
  AddNumber(command, "--drain", &flags->drain, 0,
            "Seconds that running measurements may take after a SIGTERM (default 30)");
  AddNumber(command, "--reference-interval", &flags->reference_interval, 0,
            "Seconds between timings of the reference kernel, which detect drift of a device (default 600)");
  AddServiceFlags(command, &flags->service, ConnectionSide::kClient);
  AddSandboxFlag(command, &flags->sandbox);
  AddKeepEnvironmentFlag(command, &flags->keep_environment);
  AddLimitFlags(command, flags.get());
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunWorker(*flags, session); }; });
}

}  // namespace diapason
