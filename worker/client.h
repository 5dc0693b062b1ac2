// Asking for measurements: the coordinator's end of the service Measure (proto/diapason/v1/measure.proto), in plain
// structs.
//
// Requests and results are matched by id; each request that was submitted gives exactly one result, also when workers
// are lost, answers come twice, or the tracker is restarted meanwhile (what has no result is then submitted again).
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
  kTimeAndVerify = 3,  // verified unless stopped early
};

struct Measurement {
  int64_t id = 0;                               // above 0, unique within a client for ever
  std::shared_ptr<const std::string> workload;  // SerializeDag; shared by all measurements of a task
  std::string schedule;                         // SerializeSchedule
  std::string target;                           // Target::ToString
  std::string device_model;                     // DeviceFacts::model; empty: any device of the target's kind
  MeasurementMode mode = MeasurementMode::kTime;
  int repeat = 3;              // samples
  int64_t number = 1;          // least number of launches per sample
  double min_repeat_ms = 100;  // of one sample
  bool race = true;            // stop early when clearly slower than the best
  double best_seconds = 0;     // median of the workload's best so far; 0: none. A worker knows those it measured itself
  bool flush_cache = false;
  uint64_t input_seed = 0;
  double build_timeout_s = 30, run_timeout_s = 10, verify_timeout_s = 60;
  int max_attempts = 2;  // workers that are tried when the infrastructure is at fault
  LeastWork least_work;  // what is faster than that allows is a fault of the worker; 0: not known
  // NetworkCheck of measure.proto, serialised: checks a network instead of a candidate. Workload and schedule stay
  // empty, the mode is kVerify. Null: none.
  std::shared_ptr<const std::string> network;
};

// Result of comparing with the reference implementation.
struct MeasurementCheck {
  bool ok = false;
  double max_abs_error = 0;  // infinity for NaN outputs
  double max_rel_error = 0;  // largest error over max(|element|, root mean square) of the reference
  double tolerance = 0;      // max_rel_error that was allowed
  std::string text;          // where and by how much, when not ok
  double run_seconds = 0;    // of a network that is right: the median run; 0: not measured
};

struct MeasurementResult {
  int64_t id = 0;
  // A result that differs from the reference implementation is an error of kind wrong_result, with `check` telling by
  // how much.
  Outcome outcome;
  bool cancelled = false;                 // given up by Cancel; the outcome is then an error of kind infrastructure
  std::optional<MeasurementCheck> check;  // modes that verify, when the candidate ran to its end
  // Where it was measured; empty when it reached no device.
  std::string worker, device, device_model, device_uuid, driver;
  double core_mhz = 0, memory_mhz = 0;
  std::string compiler;
  std::vector<int> registers, spill_bytes;  // of each kernel, where the compiler tells
  int attempts = 0;
  double queued_seconds = 0;  // at the tracker
};

// Totals of all workers since they started.
struct MeasureStatistics {
  int64_t builds = 0, failed_builds = 0, runs = 0, failed_runs = 0;
  int64_t builder_restarts = 0, runner_restarts = 0;
  double builder_busy_seconds = 0, runner_busy_seconds = 0;  // summed over builders and over devices
  double seconds = 0;                                        // since the first worker started
  // Where the time of the runs went: loading and allocating; inputs; constants and one run; timing of those measured in
  // full and of those that were stopped early; looking at outputs; reference implementation and comparison.
  struct RunSeconds {
    double load = 0, fill = 0, first_run = 0, timing = 0, stopped_early = 0, check = 0, verify = 0;
  } run_seconds;
  int64_t stopped_early = 0;  // runs
  int workers = 0, builders = 0, devices = 0;
  int waiting_for_builder = 0, waiting_for_runner = 0;  // now

  double builds_per_second() const { return seconds > 0 ? static_cast<double>(builds) / seconds : 0; }
  double runs_per_second() const { return seconds > 0 ? static_cast<double>(runs) / seconds : 0; }
  // Share of the time that the average builder or device was at work, 0 to 1.
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
  std::string name = "diapason";  // for people who ask the tracker
  std::string job;                // what logs call the work; empty: the name
  int priority = 0;
  double weight = 1;
  std::vector<std::pair<std::string, std::string>> labels;  // that workers must carry
  // A tracker that cannot be reached for so long ends the client: what has no result becomes an infrastructure error.
  double give_up_seconds = 60;
  double connect_seconds = -1;  // the same of Connect alone; below 0: as give_up_seconds
  // When it is set, Connect ends with Cancelled; what is connected lives on. Null: never.
  const std::atomic<bool>* stop = nullptr;
  std::shared_ptr<const ClientCredentials> credentials;
};

class MeasureClient {
 public:
  // Opens a queue at the tracker `address` (HOST:PORT; several with commas between them). Unavailable after
  // `connect_seconds`, naming the address; FailedPrecondition when versions do not fit.
  static absl::StatusOr<std::unique_ptr<MeasureClient>> Connect(const std::string& address,
                                                                MeasureClientOptions options = {});
  // Closes the queue: what is unfinished is cancelled.
  ~MeasureClient();
  MeasureClient(const MeasureClient&) = delete;
  MeasureClient& operator=(const MeasureClient&) = delete;

  // All calls are safe from any thread; one thread at a time waits in Next.

  // Takes all requests, or none. Waits while the tracker's queue is full. Errors: what the tracker refuses
  // (InvalidArgument), or that it is lost for good (Unavailable).
  absl::Status Submit(std::vector<Measurement> measurements);
  // Waits until at least one result is there or `timeout_s` has passed, and returns all that are, in order of arrival;
  // none after the timeout. Unavailable when the tracker is lost for good and every result was handed out.
  absl::StatusOr<std::vector<MeasurementResult>> Next(double timeout_s);
  // Gives up everything that has no result yet; each gets one with `cancelled` set. What runs on a device is left to
  // end.
  void Cancel();

  // Submitted and without a result that was handed out.
  int64_t unfinished() const;
  absl::StatusOr<MeasureStatistics> Statistics();
  absl::StatusOr<std::vector<MeasureDevice>> Devices();
  // Builders and devices of all workers that have a device of this model (empty: any): with fewer requests than this in
  // flight, some are idle. Asked of the tracker at most once a second; at least 1.
  int slots(const std::string& device_model = "");

  // Keeps something alive for as long as the client lives, and a little longer.
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

// A tracker and a worker in this process, and a client of them: the services that a cluster uses, but without a port or
// a socket, so that nobody else can ask them for anything. They stop, and every process that they started ends, with
// the client. Errors: those of Pipeline::Start and Connect.
absl::StatusOr<std::unique_ptr<MeasureClient>> StartEmbedded(EmbeddedOptions options);

}  // namespace diapason
