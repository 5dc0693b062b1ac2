// What the tuner needs of whatever measures candidates: workers over gRPC in the program, scripted latencies in tests.
// A request is complete in itself (workload, steps, target as bytes and text), so that any machine can answer it.
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
  int64_t number = 1;          // launches a sample, at least; grown until min_repeat_ms is reached
  double min_repeat_ms = 100;  // of one sample
  double build_timeout_s = 30;
  double run_timeout_s = 10;
  bool race = true;       // stop early candidates that are clearly slower than MeasureRequest::best_seconds
  bool flush_l2 = false;  // time with a cold last-level cache
};

// Length of a sample where none is asked for. Shorter with early stopping, where candidates near the best take the
// time.
inline double DefaultSampleMs(bool race) { return race ? 20 : 100; }

struct MeasureRequest {
  int64_t id = 0;                               // unique within a measurer; the outcome carries it
  std::shared_ptr<const std::string> workload;  // SerializeDag; shared by all requests of a task
  std::string schedule;                         // SerializeSchedule
  std::string target;                           // Target::ToString
  MeasureOptions options;
  // Median of the task's best so far, with which MeasureOptions::race compares; 0: none yet, measure in full.
  double best_seconds = 0;
  // Compare the result with the reference implementation of the workload; `verdict` is set when the kernel ran to its
  // end. The kernel is not timed then: the outcome is a Timing without samples.
  bool verify = false;
};

// Result of comparing with the reference implementation.
struct Verdict {
  bool ok = false;
  double max_error = 0;  // infinity for NaN outputs
  std::string text;      // where and by how much, when not ok
};

struct MeasureOutcome {
  int64_t id = 0;
  Outcome outcome;
  std::optional<Verdict> verdict;  // requests with `verify` only
  // Where it was measured, for the record. Empty: the device that the tuner was given.
  std::string device_model, device_uuid;
  std::string driver, compiler;
  Clocks clocks;
};

// Asynchronous: many requests may be in flight. All calls are safe from any thread; one thread at a time waits in Next.
class Measurer {
 public:
  virtual ~Measurer() = default;

  // Takes requests and returns without waiting for results. Each gives exactly one outcome, in any order; a fault of
  // the infrastructure that could not be fixed by trying elsewhere gives ErrorKind::kInfrastructure. An error (no
  // worker is left, wrong credentials) means that none of the requests was taken and the run cannot continue.
  virtual absl::Status Submit(std::vector<MeasureRequest> requests) = 0;

  // Waits until at least one outcome is there or `timeout_s` has passed, and returns all that are; none after the
  // timeout. An error ends the run: no further outcome will come.
  virtual absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) = 0;

  // Gives up what has not started: no outcome comes for it, or one of kInfrastructure. What runs may still finish.
  virtual void Cancel() = 0;

  // Requests that can be worked on at once (builders and devices): the tuner keeps at least this many in flight.
  virtual int slots() const = 0;
};

}  // namespace diapason
