#include "service/measurer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "base/check.h"
#include "compiler/tensor/serialize.h"
#include "worker/process/candidate.h"

namespace diapason {

Measurement MeasurementOf(const MeasureRequest& request) {
  Measurement m;
  m.id = request.id;
  m.workload = request.workload;
  m.schedule = request.schedule;
  m.target = request.target;
  m.mode = request.verify ? MeasurementMode::kVerify : MeasurementMode::kTime;
  m.repeat = request.options.repeat;
  m.number = request.options.number;
  m.min_repeat_ms = request.options.min_repeat_ms;
  m.race = request.options.race;
  m.best_seconds = request.best_seconds;
  m.build_timeout_s = request.options.build_timeout_s;
  m.run_timeout_s = request.options.run_timeout_s;
  return m;
}

MeasureOutcome OutcomeOf(const MeasurementResult& result) {
  MeasureOutcome outcome;
  outcome.id = result.id;
  outcome.outcome = result.outcome;
  if (result.check.has_value()) {
    outcome.verdict = Verdict{result.check->ok, result.check->max_abs_error, result.check->text};
    // The tuner wants a wrong result as a verdict on a kernel that ran.
    const MeasureError* error = std::get_if<MeasureError>(&result.outcome);
    if (error != nullptr && error->kind == ErrorKind::kWrongResult) outcome.outcome = Timing{};
  }
  outcome.device_model = result.device_model;
  outcome.device_uuid = result.device_uuid;
  outcome.driver = result.driver;
  outcome.compiler = result.compiler;
  const int32_t core = static_cast<int32_t>(std::lround(result.core_mhz));
  const bool cuda = result.device.rfind("cuda", 0) == 0;
  (cuda ? outcome.clocks.sm_mhz : outcome.clocks.cpu_mhz) = core;
  outcome.clocks.memory_mhz = static_cast<int32_t>(std::lround(result.memory_mhz));
  return outcome;
}

LeastWork ClientMeasurer::LeastWorkOfTask(const MeasureRequest& request) {
  if (request.workload == nullptr) return {};
  MutexLock lock(mutex_);
  const auto [place, is_new] = least_work_.emplace(request.workload, LeastWork{});
  if (is_new) {
    const absl::StatusOr<ComputeDag> dag = ParseDag(*request.workload);
    if (dag.ok()) place->second = LeastWorkOf(*dag, /*matrix_units=*/request.target.starts_with("cuda"));
  }
  return place->second;
}

absl::Status ClientMeasurer::Submit(std::vector<MeasureRequest> requests) {
  std::vector<Measurement> measurements;
  measurements.reserve(requests.size());
  for (const MeasureRequest& request : requests) {
    measurements.push_back(MeasurementOf(request));
    measurements.back().device_model = device_model_;
    measurements.back().least_work = LeastWorkOfTask(request);
  }
  return client_->Submit(std::move(measurements));
}

absl::StatusOr<std::vector<MeasureOutcome>> ClientMeasurer::Next(double timeout_s) {
  ASSIGN_OR_RETURN(const std::vector<MeasurementResult> results, client_->Next(timeout_s));
  std::vector<MeasureOutcome> outcomes;
  outcomes.reserve(results.size());
  for (const MeasurementResult& result : results) outcomes.push_back(OutcomeOf(result));
  return outcomes;
}

absl::StatusOr<std::unique_ptr<ClientMeasurer>> StartMeasurer(const MeasurerOptions& options) {
  EmbeddedOptions embedded;
  Target target = options.target.ForKernels();
  target.device = options.device;
  embedded.pipeline.devices = {target.ToString()};
  embedded.pipeline.builders = options.builders;
  embedded.pipeline.program_path = options.program;
  embedded.pipeline.sandbox = options.sandbox;
  embedded.pipeline.keep_environment = options.keep_environment;
  embedded.client.name = "diapason tune";
  ASSIGN_OR_RETURN(std::unique_ptr<MeasureClient> client, StartEmbedded(std::move(embedded)));
  return std::make_unique<ClientMeasurer>(std::move(client));
}

namespace {

// What is looked for, for messages: "cuda device 'NVIDIA H200' on workers with rack=a".
std::string Wanted(const FleetOptions& options) {
  const std::string text = options.target.ToString();
  std::string wanted = text.substr(0, text.find(' ')) + " device";
  if (!options.target.arch.empty()) wanted += " of architecture " + options.target.arch;
  if (!options.device_model.empty()) wanted += " '" + options.device_model + "'";
  for (size_t i = 0; i < options.client.labels.size(); ++i) {
    const auto& [key, value] = options.client.labels[i];
    wanted += (i == 0 ? " on workers with " : ",") + key + "=" + value;
  }
  return wanted;
}

bool Fits(const MeasureDevice& device, const FleetOptions& options) {
  const absl::StatusOr<Target> target = Target::Parse(device.target);
  if (!target.ok() || target->kind != options.target.kind) return false;
  if (!options.target.arch.empty() && device.facts.arch != options.target.arch) return false;
  if (!options.device_model.empty() && device.facts.model != options.device_model) return false;
  return std::all_of(options.client.labels.begin(), options.client.labels.end(), [&](const auto& label) {
    const auto found = device.labels.find(label.first);
    return found != device.labels.end() && found->second == label.second;
  });
}

}  // namespace

absl::StatusOr<Fleet> ConnectFleet(const FleetOptions& options) {
  MeasureClientOptions client_options = options.client;
  client_options.connect_seconds = std::min(options.client.give_up_seconds, options.wait_seconds);
  client_options.stop = options.stop;
  absl::StatusOr<std::unique_ptr<MeasureClient>> connected = MeasureClient::Connect(options.tracker, client_options);
  if (absl::IsCancelled(connected.status())) return absl::CancelledError("stopped while waiting for the tracker");
  ASSIGN_OR_RETURN(std::unique_ptr<MeasureClient> client, std::move(connected));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.wait_seconds);
  while (true) {
    std::map<std::string, DeviceFacts> models;
    const absl::StatusOr<std::vector<MeasureDevice>> devices = client->Devices();
    if (devices.ok()) {
      for (const MeasureDevice& device : *devices) {
        if (Fits(device, options)) models.emplace(device.facts.model, device.facts);
      }
    }
    if (models.size() == 1) {
      ResolvedTarget target = ResolveWith(options.target, models.begin()->second);
      return Fleet{std::make_unique<ClientMeasurer>(std::move(client), models.begin()->first), std::move(target)};
    }
    if (models.size() > 1) {
      std::string names;
      for (const auto& [name, facts] : models) names += (names.empty() ? "'" : ", '") + name + "'";
      return absl::InvalidArgumentError("the fleet has devices of several models that fit (" + names +
                                        "); choose one with --device");
    }
    if (options.stop != nullptr && *options.stop) return absl::CancelledError("stopped while waiting for a device");
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return absl::UnavailableError("the tracker at '" + options.tracker + "' has had no " + Wanted(options) + " for " +
                                std::to_string(std::lround(options.wait_seconds)) +
                                " s; start one with 'diapason worker --tracker " + options.tracker +
                                " --devices ...', and look at 'diapason fleet status'");
}

}  // namespace diapason
