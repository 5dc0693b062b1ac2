// diapason worker: measures on this host's devices what a tracker hands out.
#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "diapason/servers.h"

namespace diapason {
namespace {

struct WorkerFlags {
  ServiceFlags service;
  std::string tracker, labels, sandbox;  // `sandbox` empty: not given
  int64_t builders = 0;
  api::WorkerOptions options;
};

absl::StatusOr<api::WorkerOptions> WorkerOptionsOf(const WorkerFlags& flags) {
  api::WorkerOptions options = flags.options;
  options.tracker = EndpointOf(flags.tracker, flags.service.security);
  ASSIGN_OR_RETURN(const auto labels, ParsePairs("--labels", flags.labels));
  options.labels = {labels.begin(), labels.end()};
  options.builders = static_cast<int>(flags.builders);
  if (!flags.sandbox.empty()) options.sandbox = flags.sandbox;
  options.metrics = flags.service.metrics;
  return options;
}

absl::Status RunWorker(const WorkerFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(api::WorkerOptions options, WorkerOptionsOf(flags));
  std::atomic<bool> stop{false};
  std::optional<InterruptGuard> interrupt;
  options.on_start = [&](const std::vector<std::string>& devices) {
    session.out << "worker measures on " << Count(static_cast<int64_t>(devices.size()), "device") << ":";
    for (const std::string& device : devices) session.out << " " << device;
    session.out << "\n" << std::flush;
    interrupt.emplace(&stop, SecondSignal::kAsBefore);
  };
  options.hooks.stop = &stop;
  StartLog(flags.service);
  const absl::Status worked = api::RunWorker(options);
  StopLog();
  return worked;
}

// Past them a request is an error, whoever sent it.
void AddLimitFlags(CLI::App* command, api::WorkerLimits* limits) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const std::string group = "Limits of what is measured";
  AddWhole(command, "--max-request-mib", &limits->request_mib, {1, 64},
           "Serialized size of a request in MiB (default 16)")
      ->group(group);
  AddWhole(command, "--max-nodes", &limits->nodes, {1, 1 << 20}, "Nodes of a program's expressions (default 1048576)")
      ->group(group);
  AddWhole(command, "--max-steps", &limits->steps, {0, 1 << 20}, "Steps of a schedule (default 1024)")->group(group);
  AddWhole(command, "--max-iterations", &limits->iterations, {1, kMost},
           "Iterations of a stage's loops (default 10^15)")
      ->group(group);
  AddNumber(command, "--max-tensor-gib", &limits->tensor_gib, 0,
            "GiB of a program's tensors, and of the buffers of its kernels (default 64)")
      ->group(group);
  AddNumber(command, "--max-process-gib", &limits->process_gib, 0,
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
  api::WorkerOptions* options = &flags->options;
  AddTrackerFlag(command, &flags->tracker);
  command
      ->add_option("--devices", options->devices,
                   "Devices to measure on, for example cpu or opencl:0 or cuda:0,cuda:1 or cuda:*")
      ->required()
      ->type_name("LIST");
  AddWhole(command, "--builders", &flags->builders, {1, 1024},
           "Number of processes that compile (default: one per core)");
  command->add_option("--labels", flags->labels, "Labels that tuners can select by, for example rack=a,room=2")
      ->type_name("K=V,...");
  command
      ->add_option("--name", options->name,
                   "Name, unique in the fleet (default: host name and process id); a worker that is restarted under "
                   "its name replaces the previous one at once")
      ->type_name("NAME");
  command->add_option("--scratch", options->scratch, "Folder for scratch files (default: $TMPDIR or /tmp)")
      ->type_name("DIR");
  AddNumber(command, "--drain", &options->drain_seconds, 0,
            "Seconds that running measurements may take after a SIGTERM (default 30)");
  AddNumber(command, "--reference-interval", &options->reference_interval_seconds, 0,
            "Seconds between timings of the reference kernel, which detect drift of a device (default 600)");
  AddServiceFlags(command, &flags->service, ConnectionSide::kClient);
  AddSandboxFlag(command, &flags->sandbox);
  AddKeepEnvironmentFlag(command, &options->keep_environment);
  AddLimitFlags(command, &options->limits);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunWorker(*flags, session); }; });
}

}  // namespace diapason
