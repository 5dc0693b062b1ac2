// Client of the service Measure (proto/diapason/v1/measure.proto), with plain structs.
//
// Requests and results are matched by id. Each submitted request has exactly one result, even if workers are lost,
// answers are repeated or the tracker restarts (requests without a result are then submitted again).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/outcome.h"
#include "compiler/tensor/target.h"
#include "worker/pipeline/pipeline.h"
#include "worker/process/candidate.h"
#include "worker/rpc/security.h"

namespace diapason {

enum class MeasurementMode : uint8_t {
  kTime = 1,
  kVerify = 2,         // compare with the reference implementation, no timing: the outcome is a Timing without samples
  kTimeAndVerify = 3,  // both; not verified if stopped early
};

struct Measurement {
  int64_t id = 0;                               // above 0, never reused by a client
  std::shared_ptr<const std::string> workload;  // SerializeDag; shared by all measurements of a task
  std::string schedule;                         // SerializeSchedule
  std::string target;                           // Target::ToString
  std::string device_model;                     // DeviceFacts::model; empty: any device of the target's kind
  MeasurementMode mode = MeasurementMode::kTime;
  int repeat = 3;              // samples
  int64_t number = 1;          // least number of launches per sample
  double min_repeat_ms = 100;  // of one sample
  bool race = true;            // stop early if clearly slower than the best
  double best_seconds = 0;     // the workload's best median so far; 0: none. A worker also uses what it has measured
  uint64_t input_seed = 0;
  double build_timeout_s = 30, run_timeout_s = 10, verify_timeout_s = 60;
  int max_attempts = 2;  // most workers to try after infrastructure failures
  LeastWork least_work;  // bounds the time from below: a faster result is an invalid outcome; 0: not known
  // Serialized NetworkCheck of measure.proto: checks a network instead of a candidate. Workload and schedule are then
  // empty, and the mode is kVerify. Null: a candidate.
  std::shared_ptr<const std::string> network;
};

// Result of comparing with the reference implementation.
struct MeasurementCheck {
  bool ok = false;
  double max_abs_error = 0;  // infinity for NaN outputs
  double max_rel_error = 0;  // largest error over max(|element|, root mean square) of the reference
  double tolerance = 0;      // allowed max_rel_error
  std::string text;          // if not ok: the element and its error
  double run_seconds = 0;    // of a correct network: the median run; 0: not measured
};

struct MeasurementResult {
  int64_t id = 0;
  // If the result differs from the reference implementation, an error of kind wrong_result; `check` has the difference.
  Outcome outcome;
  bool cancelled = false;                 // by Cancel; the outcome is then an error of kind infrastructure
  std::optional<MeasurementCheck> check;  // with modes that verify, if the candidate completed
  // The device that measured; empty if the request reached no device.
  std::string worker, device, device_model, device_uuid, driver;
  double core_mhz = 0, memory_mhz = 0;
  std::string compiler;
  std::vector<int> registers, spill_bytes;  // of each kernel, if the compiler reports them
  int attempts = 0;
  double queued_seconds = 0;  // at the tracker
};

// Totals of all workers since they started.
struct MeasureStatistics {
  int64_t builds = 0, failed_builds = 0, runs = 0, failed_runs = 0;
  int64_t builder_restarts = 0, runner_restarts = 0;
  double builder_busy_seconds = 0, runner_busy_seconds = 0;  // summed over builders and over devices
  double seconds = 0;                                        // since the first worker started
  // Time of the runs by phase: loading and allocating; inputs; constants and the first run; timing in full; timing of
  // candidates that were stopped early; checks of outputs; reference implementation and comparison.
  struct RunSeconds {
    double load = 0, fill = 0, first_run = 0, timing = 0, stopped_early = 0, check = 0, verify = 0;
  } run_seconds;
  int64_t stopped_early = 0;  // runs
  int workers = 0, builders = 0, devices = 0;
  int waiting_for_builder = 0, waiting_for_runner = 0;  // now

  double builds_per_second() const { return seconds > 0 ? static_cast<double>(builds) / seconds : 0; }
  double runs_per_second() const { return seconds > 0 ? static_cast<double>(runs) / seconds : 0; }
  // Fraction of the time in which the average builder or device was busy, 0 to 1.
  double builder_utilisation() const {
    return builders > 0 && seconds > 0 ? builder_busy_seconds / seconds / builders : 0;
  }
  double runner_utilisation() const { return devices > 0 && seconds > 0 ? runner_busy_seconds / seconds / devices : 0; }
};

struct MeasureDevice {
  std::string worker, name;  // "cuda:0"
  std::string target;
  DeviceFacts facts;
  std::map<std::string, std::string> labels;  // of the worker
};

struct MeasureClientOptions {
  std::string name = "diapason";  // shown by `fleet status`
  std::string job;                // name of the work in logs; empty: `name`
  int priority = 0;
  double weight = 1;
  std::vector<std::pair<std::string, std::string>> labels;  // labels that workers must have
  // After a tracker was unreachable for so long, the client gives up: requests without a result become infrastructure
  // failures.
  double give_up_seconds = 60;
  double connect_seconds = -1;  // the same limit for Connect; below 0: give_up_seconds
  // Unless null: once it is true, Connect returns Cancelled. No effect on a connected client.
  const std::atomic<bool>* stop = nullptr;
  std::shared_ptr<const ClientCredentials> credentials;
};

class MeasureClient {
 public:
  // Opens a queue at the tracker `address` (HOST:PORT, or several separated by commas). Unavailable: no answer within
  // `connect_seconds`; the message names the address. FailedPrecondition: incompatible protocol versions.
  static absl::StatusOr<std::unique_ptr<MeasureClient>> Connect(const std::string& address,
                                                                MeasureClientOptions options = {});
  // Closes the queue and cancels unfinished requests.
  ~MeasureClient();
  MeasureClient(const MeasureClient&) = delete;
  MeasureClient& operator=(const MeasureClient&) = delete;

  // All calls are safe from any thread; only one thread at a time may be in Next.

  // Accepts all requests, or none. Waits while the tracker's queue is full. InvalidArgument: the tracker rejects a
  // request; Unavailable: the client has given up.
  absl::Status Submit(std::vector<Measurement> measurements);
  // Waits for a result, for at most `timeout_s`, and returns all that are available in order of arrival; none after the
  // timeout. Unavailable: the client has given up, and every result was returned.
  absl::StatusOr<std::vector<MeasurementResult>> Next(double timeout_s);
  // Cancels all requests without a result; each gets a result with `cancelled` set. What runs on a device is not
  // interrupted.
  void Cancel();

  // Submitted requests whose result Next has not returned.
  int64_t unfinished() const;
  absl::StatusOr<MeasureStatistics> Statistics();
  absl::StatusOr<std::vector<MeasureDevice>> Devices();
  // Number of builders and devices of all workers that have a device of this model (empty: any), at least 1. With fewer
  // requests in flight, some are idle. Queries the tracker at most once per second.
  int slots(const std::string& device_model = "");

  // Keeps `owned` alive until the client and its connection are destroyed.
  void Own(std::shared_ptr<void> owned);

 private:
  class Impl;
  explicit MeasureClient(std::unique_ptr<Impl> impl);
  std::vector<std::shared_ptr<void>> owned_;  // outlives the connection below
  std::unique_ptr<Impl> impl_;
};

struct EmbeddedOptions {
  PipelineOptions pipeline;
  MeasureClientOptions client;
};

// Starts a tracker and a worker in this process and returns a client of them. They are the same services as in a
// cluster, but without a port or a named socket, so that no other process can connect. They, and all processes that
// they have started, stop when the client is destroyed. Errors: those of Pipeline::Start and Connect.
absl::StatusOr<std::unique_ptr<MeasureClient>> StartEmbedded(EmbeddedOptions options);

}  // namespace diapason
