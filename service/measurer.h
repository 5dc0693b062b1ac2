// The tuner's measurer over the services that measure. The embedded ones are the same as a cluster's
// (docs/architecture.md, decision 7), so that nothing here knows which it talks to.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "compiler/tensor/target.h"
#include "scheduler/measurer.h"
#include "service/target.h"
#include "worker/client.h"

namespace diapason {

class ClientMeasurer : public Measurer {
 public:
  // `device_model`: of the devices that measure; empty: any of the target's kind.
  explicit ClientMeasurer(std::unique_ptr<MeasureClient> client, std::string device_model = "")
      : client_(std::move(client)), device_model_(std::move(device_model)) {}
  absl::Status Submit(std::vector<MeasureRequest> requests) override;
  absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) override;
  void Cancel() override { client_->Cancel(); }
  int slots() const override { return client_->slots(device_model_); }
  MeasureClient& client() { return *client_; }

 private:
  // Of a task's program, worked out once.
  LeastWork LeastWorkOfTask(const MeasureRequest& request);

  const std::unique_ptr<MeasureClient> client_;
  const std::string device_model_;
  Mutex mutex_;
  std::map<std::shared_ptr<const std::string>, LeastWork> least_work_ ABSL_GUARDED_BY(mutex_);
};

struct MeasurerOptions {
  Target target;     // with all that a program's text depends on, but for -device
  int device = 0;    // which of several GPUs
  int builders = 0;  // builder processes; 0: as many as suit the machine
  SandboxMode sandbox = SandboxMode::kOff;
  std::vector<std::string> keep_environment;  // PipelineOptions
  std::string program = "/proc/self/exe";     // what processes are started from
};

// Starts tracker, worker and their processes for one run of the tuner; they end with the measurer, and nobody else can
// reach them (StartEmbedded). Unavailable when a process cannot be had.
absl::StatusOr<std::unique_ptr<ClientMeasurer>> StartMeasurer(const MeasurerOptions& options);

struct FleetOptions {
  std::string tracker;       // HOST:PORT; several with commas between them
  Target target;             // as the user wrote it
  std::string device_model;  // empty: the one that the fleet has
  MeasureClientOptions client;
  double wait_seconds = 60;  // for the tracker, though no longer than the client gives up, and for a device that fits
  const std::atomic<bool>* stop = nullptr;
};

struct Fleet {
  std::unique_ptr<ClientMeasurer> measurer;
  ResolvedTarget target;  // with the facts of the fleet's devices
};

// Asks a tracker for devices of the target's kind (and architecture and model, where they are given) on workers with
// the labels that the client's options name, waiting for the first. All measurements then go to devices of one model.
// Unavailable, with what was tried and how to fix it, when the tracker does not answer or no device comes;
// InvalidArgument when there are several models to choose from; Cancelled when *stop becomes true.
absl::StatusOr<Fleet> ConnectFleet(const FleetOptions& options);

// Conversions, for tests.
Measurement MeasurementOf(const MeasureRequest& request);
MeasureOutcome OutcomeOf(const MeasurementResult& result);

}  // namespace diapason
