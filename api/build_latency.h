// The latency of a package as a build sees it: expected from the times of its tasks and what the network was measured
// to take, and measured where the device is.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "db/history.h"

namespace diapason {

// What a network (NetworkLatency names it) took over the sum of its tasks' times, as the history at `path` knows it;
// nothing: it does not. Errors of the history.
absl::StatusOr<std::optional<double>> CorrectionFor(const std::string& path, const NetworkLatency& network);

// Seconds of a run of the package's plan in use on this machine's device; nothing where it has no such device. Errors
// of loading and running.
absl::StatusOr<std::optional<double>> MeasurePackage(const Package& package, const std::string& device_model);

// Stores it for later estimates. Errors of the history.
absl::Status KeepLatency(const std::string& path, const NetworkLatency& latency);

}  // namespace diapason
