// The tuner's measurer over the services that measure. The embedded ones are the same as a cluster's (docs/architecture.md,
// decision 7), so that nothing here knows which it talks to.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compiler/tensor/target.h"
#include "scheduler/measurer.h"
#include "worker/client.h"

namespace diapason {

class ClientMeasurer : public Measurer {
 public:
  explicit ClientMeasurer(std::unique_ptr<MeasureClient> client) : client_(std::move(client)) {}
  absl::Status Submit(std::vector<MeasureRequest> requests) override;
  absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) override;
  void Cancel() override { client_->Cancel(); }
  int slots() const override { return client_->slots(); }
  MeasureClient& client() { return *client_; }

 private:
  const std::unique_ptr<MeasureClient> client_;
};

struct MeasurerOptions {
  Target target;     // with all that a program's text depends on, but for -device
  int device = 0;    // which of several GPUs
  int builders = 0;  // builder processes; 0: as many as suit the machine
};

// Starts tracker, worker and their processes on loopback for one run of the tuner; they end with the measurer. Unavailable
// when a process or a port cannot be had.
absl::StatusOr<std::unique_ptr<ClientMeasurer>> StartMeasurer(const MeasurerOptions& options);

// Conversions, for tests.
Measurement MeasurementOf(const MeasureRequest& request);
MeasureOutcome OutcomeOf(const MeasurementResult& result);

}  // namespace diapason
