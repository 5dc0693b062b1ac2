#include "cli/measurer_adapter.h"

#include <cmath>
#include <utility>

#include "compiler/tensor/check.h"

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
  m.flush_cache = request.options.flush_l2;
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

absl::Status ClientMeasurer::Submit(std::vector<MeasureRequest> requests) {
  std::vector<Measurement> measurements;
  measurements.reserve(requests.size());
  for (const MeasureRequest& request : requests) measurements.push_back(MeasurementOf(request));
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
  Target target = options.target;
  target.device = options.device;
  embedded.pipeline.devices = {target.ToString()};
  embedded.pipeline.builders = options.builders;
  embedded.client.name = "diapason tune";
  ASSIGN_OR_RETURN(std::unique_ptr<MeasureClient> client, StartEmbedded(std::move(embedded)));
  return std::make_unique<ClientMeasurer>(std::move(client));
}

}  // namespace diapason
