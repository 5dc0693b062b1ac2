// Processes that run until they are stopped: trackers, workers and services (docs/fleet.md), and the page of a history
// (docs/page.md). See model.h.
//
//   diapason::api::TrackerOptions options;
//   options.listen.address = "127.0.0.1:9190";
//   options.on_listen = [](const std::string& address) { std::cout << "listens on " << address << std::endl; };
//   options.hooks.stop = &stop;  // set by a signal handler
//   const absl::Status served = diapason::api::RunTracker(options);
//
// Each call returns OK soon after *hooks.stop has become true; without a `stop`, it ends with an error only. Callbacks
// are called on the calling thread and may be empty. InvalidArgument names an option that is malformed or out of range,
// PermissionDenied one that would let others than meant connect; errors of certificates and tokens name their files.
// Under systemd (NOTIFY_SOCKET is set), RunTracker and Serve say when they are ready, and that they still serve where
// the unit has WatchdogSec.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "diapason/launch.h"
#include "diapason/model.h"

namespace diapason::api {

// Where a server listens, and whom it admits.
struct ListenOptions {
  std::string address;  // HOST:PORT; port 0: a free one
  // File with the tokens to accept, a line ROLE TOKEN NAME for each; read again when it changes. Empty: no token is
  // needed.
  std::string tokens;
  std::string tls_cert, tls_key, tls_ca;  // PEM files for mutual TLS: all or none; read again when they change
  bool allow_no_role = false;             // accept certificates without a role
  bool insecure = false;                  // allow unencrypted connections with other hosts
};

// Limits on all queues of one token together. 0: the default.
struct TokenQuotas {
  int64_t queues = 0;      // tuners and jobs that measure at the same time
  int64_t pending = 0;     // measurements that are queued, running or not yet fetched
  int64_t stored_mib = 0;  // total size in MiB of these measurements and their results
  bool given() const { return queues > 0 || pending > 0 || stored_mib > 0; }
};
inline constexpr TokenQuotas kDefaultTokenQuotas{256, 65536, 128}, kLargestTokenQuotas{1024, 1 << 30, 256};

struct TrackerOptions {
  ListenOptions listen;
  std::string state;                 // file that keeps queues, leases and results across restarts; empty: none
  std::string metrics;               // HOST:PORT of /metrics for Prometheus, in plain text; empty: none
  double heartbeat_seconds = 1;      // between the reports of a worker
  double session_seconds = 10;       // without a report, after which a worker is lost; more than two heartbeats
  double lease_seconds = 15;         // after which a lease that is not renewed expires; no less than a session
  double queue_expiry_seconds = 60;  // without a call, after which a tuner is forgotten
  // A device is out of service while its reference-kernel time differs by more than this ratio from that of other
  // devices of its model; 0: never.
  double exclude_drift = 0;
  int64_t max_pending = 4096;  // measurements that one tuner may have queued
  TokenQuotas quotas;
  std::function<void(const std::string& address)> on_listen;  // called once, with the port that was chosen
  Hooks hooks;
};

// Runs the registry of workers and the queue of measurements. Unavailable: nothing can listen at an address. Other
// errors: of the state file.
absl::Status RunTracker(const TrackerOptions& options);

// What a worker measures at most. Past it a request is an error, whoever sent it.
struct WorkerLimits {
  int64_t request_mib = 16;                    // serialized size
  int64_t nodes = 1 << 20;                     // of a program's expressions
  int64_t steps = 1024;                        // of a schedule
  int64_t iterations = 1'000'000'000'000'000;  // of a stage's loops
  double tensor_gib = 64;                      // of a program's tensors, and of the buffers of its kernels
  // Memory that a builder, a compiler or a runner may allocate, but runners of cuda, which reserve more than there is;
  // 0: half of the host's, 4 GiB at least.
  double process_gib = 0;
};

struct WorkerOptions {
  Endpoint tracker;
  std::string devices;  // to measure on: "cpu", "opencl:0", "cuda:0,cuda:1", "cuda:*" or "cpu -num-cores=2"
  std::string name;     // unique in the fleet; empty: host name and process id
  std::map<std::string, std::string> labels;  // that tuners can select by
  int builders = 0;                           // number of processes that compile; 0: one per core
  std::string scratch;                        // folder for scratch files; empty: $TMPDIR or /tmp
  std::string sandbox = "auto";               // "auto", "on", "off": whether bubblewrap isolates processes
  std::vector<std::string> keep_environment;  // variables to pass besides those that compilers and drivers need
  double drain_seconds = 30;                  // that running measurements may take at the end
  double reference_interval_seconds = 600;    // between timings of the reference kernel
  std::string metrics;                        // as of TrackerOptions
  WorkerLimits limits;
  // Called once, when all devices have answered: "cuda:0 (NVIDIA H200)", in the order of `devices`.
  std::function<void(const std::vector<std::string>& devices)> on_start;
  Hooks hooks;
};

// Measures on devices of this host what a tracker hands out, and at the end finishes what it has begun. A tracker that
// does not answer is asked again forever. NotFound, Unavailable: a device is not there, or does not answer;
// FailedPrecondition, InvalidArgument, AlreadyExists, PermissionDenied, Unauthenticated: the tracker refuses the
// worker.
absl::Status RunWorker(const WorkerOptions& options);

struct ServeOptions {
  ListenOptions listen;
  std::string history;  // of all jobs; created if it does not exist
  Endpoint tracker;     // no address: the service runs its own, which workers reach at listen.address
  std::string state;    // file for the state of its own tracker; empty: the history's, with .tracker
  std::string http;     // HOST:PORT of the page, with the certificates and tokens of `listen`; empty: none
  std::string metrics;  // as of TrackerOptions
  // Of services that share a history in PostgreSQL: seconds without a renewal after which another one takes over.
  // 0: 15.
  double lease_seconds = 0;
  int64_t max_running_jobs = 4;
  int64_t max_queued_jobs = 256;                // that wait or run; further ones are rejected
  int64_t max_unfinished_jobs_per_token = 128;  // submitted or resumed with one token
  int64_t max_models = 1000;                    // to keep; the least recently used are removed first
  double max_models_gib = 64;                   // their total size
  double import_memory_gib = 0;                 // of the process that reads a model; 0: half of the host's
  double import_seconds = 300;                  // its time limit
  TokenQuotas quotas;                           // of its own tracker
  LaunchRequest launch;                         // workers to start, which end with the service
  // Called when it is active: with its address and the page's URL (empty: no page).
  std::function<void(const std::string& address, const std::string& page)> on_listen;
  // Called when it stands by: the address of the service that has the history's lease.
  std::function<void(const std::string& active)> on_standby;
  Hooks hooks;
};

// Runs the service that accepts tuning jobs and answers queries of a history. Of several services with one history in
// PostgreSQL one is active; the others stand by, with all their addresses closed, until one of them takes over. Errors
// are those of the history, of opening jobs and models, of the addresses and of CheckOptions(launch).
absl::Status Serve(const ServeOptions& options);

// Where ServePages listens unless told otherwise; at a free port if that one is in use.
inline constexpr char kPageAddress[] = "127.0.0.1:8085";

struct PageOptions {
  std::string history;
  ListenOptions http;  // no address: kPageAddress
  std::function<void(const std::string& url)> on_listen;
  Hooks hooks;
};

// Serves a history as a page, which shows new measurements at once. Errors are those of History::Open; Unavailable:
// nothing can listen at the address.
absl::Status ServePages(const PageOptions& options);

// Which events of servers and launched workers are logged to stderr, a line each, by this process: "none" (the
// default), "error", "warning", "info" or "debug". InvalidArgument: another text.
absl::Status SetLogLevel(const std::string& level);

}  // namespace diapason::api
