#include "cli/build_latency.h"

#include <memory>

#include "compiler/build/package.h"
#include "compiler/tensor/check.h"
#include "scheduler/objective.h"

namespace diapason {
namespace {

// As many and as long as `diapason run --bench` takes by default would keep a build of a slow network waiting.
constexpr int kSamples = 5;
constexpr double kSampleMs = 20, kMostSeconds = 2;

}  // namespace

absl::StatusOr<double> CorrectionFor(const std::string& path, const NetworkLatency& network) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const std::optional<NetworkLatency> known,
                   history->Latency(network.network, network.target, network.device_model));
  return known.has_value() ? Correction(known->measured, known->modelled) : 1;
}

absl::StatusOr<std::optional<double>> MeasureLatency(const std::string& package, const std::string& device_model) {
  absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(package);
  // No device here, or another one.
  if (absl::IsUnavailable(runner.status()) || absl::IsFailedPrecondition(runner.status())) return std::nullopt;
  RETURN_IF_ERROR(runner.status());
  if ((*runner)->device().facts().model != device_model) return std::nullopt;
  RETURN_IF_ERROR((*runner)->SetInputs(RandomInputs((*runner)->manifest(), 0)));
  RETURN_IF_ERROR((*runner)->Run());
  TimingOptions options;
  options.repeat = kSamples;
  options.min_repeat_ms = kSampleMs;
  options.max_seconds = kMostSeconds;
  ASSIGN_OR_RETURN(const Timing timing, (*runner)->Bench(options));
  return MedianSeconds(timing);
}

absl::Status KeepLatency(const std::string& path, const NetworkLatency& latency) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(path, HistoryMode::kReadWrite));
  return history->SetLatency(latency);
}

}  // namespace diapason
