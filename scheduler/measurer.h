// The tuner's interface for measuring candidates: implemented by workers over gRPC in the program, by scripted
// latencies in tests. A request is self-contained (workload, steps, target as bytes and text), so that any machine can
// answer it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/outcome.h"
#include "db/history.h"

namespace diapason {

// How to measure; the same for all requests of a run. The measurer owns every deadline.
struct MeasureOptions {
  int repeat = 3;              // samples
  int64_t number = 1;          // least number of launches per sample; increased until min_repeat_ms is reached
  double min_repeat_ms = 100;  // of one sample
  double build_timeout_s = 30;
  double run_timeout_s = 10;
  bool race = true;  // stop early candidates that are clearly slower than MeasureRequest::best_seconds
};

// The default of min_repeat_ms. Shorter with early stopping, since most of the time is then spent on candidates near
// the best.
inline double DefaultSampleMs(bool race) { return race ? 20 : 100; }

struct MeasureRequest {
  int64_t id = 0;                               // unique within a measurer; the outcome carries it
  std::shared_ptr<const std::string> workload;  // SerializeDag; shared by all requests of a task
  std::string schedule;                         // SerializeSchedule
  std::string target;                           // Target::ToString
  MeasureOptions options;
  // Median of the task's best record so far, for MeasureOptions::race; 0: none yet, measure in full.
  double best_seconds = 0;
  // Compare the result with the reference implementation of the workload instead of timing the kernel: if the kernel
  // completed, the outcome is a Timing without samples, and `verdict` is set.
  bool verify = false;
};

// Result of comparing with the reference implementation.
struct Verdict {
  bool ok = false;
  double max_error = 0;  // infinity for NaN outputs
  std::string text;      // if not ok: the element and its error
};

struct MeasureOutcome {
  int64_t id = 0;
  Outcome outcome;
  std::optional<Verdict> verdict;  // requests with `verify` only
  // The device that measured, for the record. Empty: the device that the tuner was given.
  std::string device_model, device_uuid;
  std::string driver, compiler;
  Clocks clocks;
};

// Asynchronous: many requests may be in flight. All calls are safe from any thread; only one thread at a time may be in
// Next.
class Measurer {
 public:
  virtual ~Measurer() = default;

  // Accepts requests and returns without waiting for results. Each request has exactly one outcome, in any order; an
  // infrastructure failure that retries did not resolve is an outcome of ErrorKind::kInfrastructure. An error (no
  // worker is left, wrong credentials) means that none of the requests was accepted and the run cannot continue.
  virtual absl::Status Submit(std::vector<MeasureRequest> requests) = 0;

  // Waits for an outcome, for at most `timeout_s`, and returns all that are available; none after the timeout. An error
  // ends the run: there will be no further outcomes.
  virtual absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) = 0;

  // Cancels requests that have not started: they have no outcome, or one of kInfrastructure. Running ones may finish.
  virtual void Cancel() = 0;

  // Requests that can be processed at the same time (builders and devices): the tuner keeps at least this many in
  // flight.
  virtual int slots() const = 0;
};

}  // namespace diapason
