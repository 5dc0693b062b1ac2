#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/device_names.h"
#include "api/endpoint.h"
#include "api/import.h"
#include "api/server_parts.h"
#include "base/check.h"
#include "diapason/servers.h"
#include "worker/agent/agent.h"
#include "worker/rpc/log.h"

namespace diapason::api {
namespace {

constexpr double kBytesOfGib = int64_t{1} << 30;

absl::Status CheckWorker(const WorkerOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const WorkerLimits& limits = options.limits;
  if (!ParseSandboxMode(options.sandbox).has_value())
    return absl::InvalidArgumentError(absl::StrCat("sandbox is '", options.sandbox, "'; give auto, on or off"));
  return CheckRanges({{"builders", options.builders, 0, 1024},
                      {"limits.request_mib", limits.request_mib, 1, 64},
                      {"limits.nodes", limits.nodes, 1, 1 << 20},
                      {"limits.steps", limits.steps, 0, 1 << 20},
                      {"limits.iterations", limits.iterations, 1, kMost}});
}

absl::StatusOr<AgentOptions> AgentOptionsOf(const WorkerOptions& given) {
  RETURN_IF_ERROR(CheckWorker(given));
  AgentOptions options;
  options.tracker = given.tracker.address;
  ASSIGN_OR_RETURN(options.credentials, CredentialsFor("--tracker", given.tracker));
  options.name = options.worker_id = given.name;
  options.labels = given.labels;
  PipelineOptions& pipeline = options.pipeline;
  pipeline.program_path = Program();
  ASSIGN_OR_RETURN(pipeline.devices, DeviceTargets(given.devices));
  pipeline.builders = given.builders;
  pipeline.scratch_base = given.scratch;
  pipeline.sandbox = *ParseSandboxMode(given.sandbox);
  pipeline.keep_environment = given.keep_environment;
  const WorkerLimits& limits = given.limits;
  pipeline.limits = {limits.request_mib << 20, limits.nodes, limits.steps, limits.iterations,
                     static_cast<int64_t>(limits.tensor_gib * kBytesOfGib)};
  pipeline.builder_memory_bytes = pipeline.runner_memory_bytes = static_cast<int64_t>(limits.process_gib * kBytesOfGib);
  pipeline.reference_interval_seconds = given.reference_interval_seconds;
  return options;
}

}  // namespace

absl::Status RunWorker(const WorkerOptions& options) {
  ASSIGN_OR_RETURN(AgentOptions agent_options, AgentOptionsOf(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerAgent> agent, WorkerAgent::Start(std::move(agent_options)));
  const Endpoint& tracker = options.tracker;
  const MetricsRequest served{options.metrics, tracker.insecure, {tracker.tls_cert, tracker.tls_key, tracker.tls_ca}};
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(served, [&agent] { return agent->Metrics(); }));
  if (options.on_start) options.on_start(agent->pipeline_devices());
  absl::Status refused;
  WaitForStop(options.hooks, [&] {
    refused = agent->Refusal();
    return !refused.ok();
  });
  if (refused.ok()) {
    LogEvent(LogLevel::kInfo, "worker_drains", {});
    const absl::Status drained = agent->Drain(options.drain_seconds);
    if (!drained.ok()) LogEvent(LogLevel::kWarning, "worker_gives_back", {{"why", std::string(drained.message())}});
  }
  agent->Stop();
  return refused;
}

}  // namespace diapason::api
