// The history: every measurement of every tuning run, in one SQLite file that several processes may use at once. The
// schema, its versions and examples for sqlite3(1) are in docs/history.md.
//
// A record for which Append has returned an id survives a crash of the process and a power failure (WAL with
// synchronous=FULL). A file that is damaged, has a newer version, belongs to another program or is not a database is
// rejected with a message that names it and says how to fix it, and is not changed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/outcome.h"

namespace diapason {

class HistoryDatabase;  // db/history_database.h
class WriteFence;       // db/database.h

// The result of comparing a record's kernel with the reference implementation of its workload on the device.
// kWrongInNetwork: the kernel is correct alone, but an assembled network with it computed wrong outputs.
enum class Verified : uint8_t { kUnknown = 0, kOk, kFailed, kWrongInNetwork };
const char* VerifiedName(Verified verified);  // "unknown", "ok", "failed", "wrong_in_network"
// Whether a record in this state must not be used.
inline bool IsRefuted(Verified verified) {
  return verified == Verified::kFailed || verified == Verified::kWrongInNetwork;
}

// Megahertz while measuring; 0: unknown.
struct Clocks {
  int32_t sm_mhz = 0;
  int32_t memory_mhz = 0;
  int32_t cpu_mhz = 0;
  bool operator==(const Clocks&) const = default;
};

// One measurement. Texts are stored as UTF-8; invalid bytes become U+FFFD.
struct TuningRecord {
  int64_t id = 0;            // assigned by Append; differs between files
  std::string uuid;          // 32 hexadecimal digits, the same in every copy; empty: Append generates one
  int64_t run_id = 0;        // from StartRun; 0: no run
  std::string workload_key;  // WorkloadKey of the dag
  std::string workload;      // SerializeDag; only the first one stored for a key is kept
  std::string task_name;     // for display only
  std::string target;        // canonical text, Target::ToString
  std::string device_model;  // DeviceFacts::model
  std::string device_uuid;
  std::string rewrite;  // "direct", "gemm", ...
  std::string sketch;
  std::string schedule;  // serialized steps, which can be replayed on the workload without the rules that made them
  std::vector<int32_t> configuration;
  uint64_t configuration_hash = 0;
  Outcome outcome = MeasureError{};
  std::optional<double> predicted;  // the model's score when the candidate was chosen
  uint64_t seed = 0;
  int64_t trial = 0;  // position within its task, from 0
  Clocks clocks;
  std::string driver;
  std::string compiler;    // version text
  int64_t created_at = 0;  // Unix time in nanoseconds; 0: Append sets the current time
  // May be set here, or later by SetVerified.
  Verified verified = Verified::kUnknown;
  std::optional<double> max_error;  // largest error found by verification; infinity for NaN outputs
  std::string verify_text;

  const Timing* timing() const { return std::get_if<Timing>(&outcome); }
  const MeasureError* error() const { return std::get_if<MeasureError>(&outcome); }
};

// One run of a tuner.
struct TuningRun {
  int64_t id = 0;
  std::string uuid = {};  // as TuningRecord's
  std::string command_line = {};
  uint64_t seed = 0;
  std::string host = {};
  std::string version = {};  // of the program
  int64_t started_at = 0;    // Unix nanoseconds; 0: StartRun sets the current time
  int64_t ended_at = 0;      // 0: still running, or killed
};

// A network contains this workload `weight` times.
struct NetworkTask {
  std::string network = {};  // "resnet-18" or the name of the model's file
  std::string workload_key = {};
  std::string workload = {};  // SerializeDag
  std::string task_name = {};
  double weight = 1;
};

// The latency of a network measured end to end on a device, and the sum of its tasks' times. The ratio of the two
// corrects estimates.
struct NetworkLatency {
  std::string network = {};  // as NetworkTask::network
  std::string target = {};   // as TuningRecord::target
  std::string device_model = {};
  double measured = 0, tasks = 0;  // seconds: end to end; the sum of the tasks' times multiplied by their counts
  int64_t measured_at = 0;         // Unix nanoseconds; 0: SetLatency sets the current time
  bool operator==(const NetworkLatency&) const = default;
};

// Selects records; an empty member matches all.
struct RecordFilter {
  std::string target = {};    // the target's text, or its first words: "cuda" matches "cuda -arch=sm_90"
  std::string workload = {};  // workload key or a prefix of it
  std::string device_model = {};
  std::string network = {};  // workloads linked to this network
};

struct HistoryInfo {
  struct Workload {
    std::string workload_key, task_name, target, device_model;
    int64_t records = 0, failed = 0, verified = 0;
    std::optional<double> best_seconds;  // median of Best
  };
  struct Device {
    std::string model, uuid;
    int64_t records = 0;
  };
  struct Network {
    std::string name;
    int64_t tasks = 0;
  };
  int schema_version = 0;
  int64_t bytes = 0;  // of the file and its write-ahead log
  int64_t records = 0, failed = 0, runs = 0;
  std::vector<std::pair<std::string, int64_t>> errors;  // by name of the kind, most frequent first
  std::vector<Workload> workloads;                      // by key, target and device
  std::vector<Device> devices;
  std::vector<Network> networks;
  int64_t first_at = 0, last_at = 0;  // Unix nanoseconds of the oldest and newest record; 0: none
};

struct ExportOptions {
  RecordFilter filter;
  bool skip_damaged = false;  // skip records that cannot be read, instead of stopping at the first
  bool with_host = true;      // include the host name of each run
  // JSON lines: name and version of the writing program. The first line then contains it and all runs, and records
  // refer to their run by its uuid. Empty: each line is self-contained.
  std::string program{};
  // JSON lines: returns the names of a record's parameters, which are known to the search spaces only, for
  // `configuration`. Null, or an empty result: lines have the values without names.
  std::function<std::vector<std::string>(const TuningRecord& record)> names{};
};
struct ExportReport {
  int64_t records = 0;
  std::vector<std::string> damaged;  // with skip_damaged
};
enum class HistoryMode : uint8_t {
  kReadOnly,   // never writes to the file; an older version is migrated in memory
  kReadWrite,  // NotFound if the file does not exist
  kCreate,     // as kReadWrite, but creates the file if it does not exist
};

struct HistoryOptions {
  std::chrono::milliseconds busy_timeout{30000};  // limit on waiting for another process that writes
  bool allow_damage = false;                      // open a damaged file to save what can be read; with kReadOnly only
  std::function<int64_t()> now;                   // Unix nanoseconds; default: the system's clock
  std::function<std::string()> new_uuid;          // default: random
  std::shared_ptr<const WriteFence> fence = nullptr;  // PostgreSQL: rejects writes after another service took over
};

// Queries for displays are in db/trials.h, exports and imports in db/json_lines.h, the check in db/integrity.h, and
// pruning in db/prune.h.
//
// Safe from any thread (one lock); do not use a History across fork().
class History {
 public:
  // NotFound: no such file or folder. FailedPrecondition: not a history, or of a newer version. DataLoss: damaged.
  // PermissionDenied: no permission to read or write. Unavailable: locked for longer than busy_timeout.
  // ResourceExhausted: the disk is full. The other calls return these too if the file changes after it was opened.
  static absl::StatusOr<std::unique_ptr<History>> Open(const std::string& path, HistoryMode mode,
                                                       HistoryOptions options = {});
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Adds all records or, on failure, none; returns their ids in order. After OK they are on disk. InvalidArgument: a
  // record has no workload key, target or device model, a sample that is not positive, a `predicted` that is not
  // finite, an existing uuid, or an unknown run.
  absl::StatusOr<std::vector<int64_t>> Append(const std::vector<TuningRecord>& records);
  // NotFound: unknown id.
  absl::StatusOr<TuningRecord> Get(int64_t id);

  // The record with the smallest median that is not refuted (IsRefuted). Fully measured records rank before those that
  // were stopped early, and of equal medians the older one is best. Nothing if no measurement succeeded. An empty
  // target matches all targets.
  absl::StatusOr<std::optional<TuningRecord>> Best(const std::string& workload_key, const std::string& device_model,
                                                   const std::string& target = "");
  // As Best, but verified records rank before all others.
  absl::StatusOr<std::optional<TuningRecord>> BestForBuild(const std::string& workload_key,
                                                           const std::string& device_model,
                                                           const std::string& target = "");
  // The best `k` records of each workload, target and device that the filter matches, ranked as by Best and sorted by
  // workload key, target and device first. REQUIRES: k >= 1.
  absl::StatusOr<std::vector<TuningRecord>> TopK(const RecordFilter& filter, int64_t k);
  // All measurements, including failures, in the order in which they were stored. A tuner resumes from them.
  absl::StatusOr<std::vector<TuningRecord>> ForWorkload(const std::string& workload_key,
                                                        const std::string& device_model,
                                                        const std::string& target = "");

  // NotFound: unknown id. A `max_error` of NaN is stored as infinity.
  absl::Status SetVerified(int64_t id, bool ok, double max_error, const std::string& text);
  // Marks a record that is correct alone and wrong in an assembled network. `text` is the evidence: the network, the
  // output, the largest error (`max_error`, absolute), the tolerance and the seed of the inputs. NotFound: unknown id.
  absl::Status MarkWrongInNetwork(int64_t id, double max_error, const std::string& text);

  // Adds the samples of another full measurement to those of a record. Its median is then that of all samples, and it
  // no longer counts as stopped early. Returns the new median. NotFound: unknown id; FailedPrecondition: the record is
  // a failure; InvalidArgument: there are no samples, or some are not positive.
  absl::StatusOr<double> AddSamples(int64_t id, const std::vector<double>& samples);

  // Stores the latency of a network, and replaces an earlier one of the same network, target and device. Latencies are
  // not exported. InvalidArgument: a time is not positive.
  absl::Status SetLatency(const NetworkLatency& latency);
  absl::StatusOr<std::optional<NetworkLatency>> Latency(const std::string& network, const std::string& target,
                                                        const std::string& device_model);

  // Stores a run of a tuner; returns its id for records.
  absl::StatusOr<int64_t> StartRun(const TuningRun& run);
  // Sets the end of the run to the current time. NotFound: unknown id.
  absl::Status EndRun(int64_t run_id);
  absl::StatusOr<std::vector<TuningRun>> Runs();

  // Adds or updates the tasks of networks.
  absl::Status LinkNetwork(const std::vector<NetworkTask>& tasks);
  // Sorted by network and workload key; an empty name selects all networks.
  absl::StatusOr<std::vector<NetworkTask>> NetworkTasks(const std::string& network = "");

  absl::StatusOr<HistoryInfo> Info();

  // Calls `take` for each selected record in the order of their ids, within one snapshot, and counts them. Returns the
  // first error of `take`, which must not call this history. DataLoss: a record is damaged, and
  // skip_damaged is not set or none can be read.
  absl::StatusOr<ExportReport> Scan(const ExportOptions& options,
                                    const std::function<absl::Status(const TuningRecord& record)>& take);

  const std::string& path() const;
  // Access for other sources of this folder.
  HistoryDatabase& database() { return *database_; }

 private:
  explicit History(std::unique_ptr<HistoryDatabase> database);
  std::unique_ptr<HistoryDatabase> database_;
};

}  // namespace diapason
