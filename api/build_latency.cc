#include "api/build_latency.h"

#include <memory>

#include "base/check.h"
#include "compiler/build/measure_latency.h"
#include "compiler/build/random_inputs.h"
#include "scheduler/objective.h"

namespace diapason {

absl::StatusOr<std::optional<double>> CorrectionFor(const std::string& path, const NetworkLatency& network) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const std::optional<NetworkLatency> known,
                   history->Latency(network.network, network.target, network.device_model));
  if (!known.has_value()) return std::nullopt;
  return Correction(known->measured, known->tasks);
}

absl::StatusOr<std::optional<double>> MeasurePackage(const Package& package, const std::string& device_model) {
  absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(package);
  // No device here, or another one.
  if (absl::IsUnavailable(runner.status()) || absl::IsFailedPrecondition(runner.status())) return std::nullopt;
  RETURN_IF_ERROR(runner.status());
  if ((*runner)->device().facts().model != device_model) return std::nullopt;
  RETURN_IF_ERROR((*runner)->SetInputs(RandomInputs((*runner)->manifest(), 0)));
  return MeasureLatency(**runner);
}

absl::Status KeepLatency(const std::string& path, const NetworkLatency& latency) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(path, HistoryMode::kReadWrite));
  return history->SetLatency(latency);
}

}  // namespace diapason
