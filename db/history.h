// The history: every measurement of every tuning run, in one SQLite file that several processes may use at once. The
// schema, its versions and examples for sqlite3(1) are in docs/history.md.
//
// A record that Append has returned an id for survives the death of the process and a power cut (WAL with
// synchronous=FULL). A file that is damaged, of a newer version, of another program or no database is refused with one
// sentence that names it and says how to fix it, and is left as it is.
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

// Whether the result of a record's kernel was compared with the reference implementation of its workload on the device.
// kWrongInNetwork: alone it is right, but a network that was assembled with it computed wrong outputs.
enum class Verified : uint8_t { kUnknown = 0, kOk, kFailed, kWrongInNetwork };
const char* VerifiedName(Verified verified);  // "unknown", "ok", "failed", "wrong_in_network"
// Whether a record in this state must not be used.
inline bool IsRefuted(Verified verified) {
  return verified == Verified::kFailed || verified == Verified::kWrongInNetwork;
}

// Megahertz while measuring; 0 where not known.
struct Clocks {
  int32_t sm_mhz = 0;
  int32_t memory_mhz = 0;
  int32_t cpu_mhz = 0;
  bool operator==(const Clocks&) const = default;
};

// One measurement. Text is stored as UTF-8: bytes that are none become U+FFFD.
struct TuningRecord {
  int64_t id = 0;            // given by Append; differs between files
  std::string uuid;          // 32 hexadecimal digits, the same in every file; empty: Append makes one
  int64_t run_id = 0;        // StartRun's; 0: of no run
  std::string workload_key;  // WorkloadKey of the dag
  std::string workload;      // SerializeDag. Kept once for each key: the first one stored is what readers get
  std::string task_name;     // for people
  std::string target;        // canonical text, Target::ToString
  std::string device_model;  // DeviceFacts::model
  std::string device_uuid;
  std::string rewrite;  // "direct", "gemm", ...
  std::string sketch;
  std::string schedule;  // serialised steps: replays on the workload without the rules that made it
  std::vector<int32_t> configuration;
  uint64_t configuration_hash = 0;
  Outcome outcome = MeasureError{};
  std::optional<double> predicted;  // the model's score when the candidate was chosen
  uint64_t seed = 0;
  int64_t trial = 0;  // position within its task, from 0
  Clocks clocks;
  std::string driver;
  std::string compiler;    // version text
  int64_t created_at = 0;  // Unix time in nanoseconds; 0: Append takes the clock's
  // Set through SetVerified afterwards, or here when known.
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
  int64_t started_at = 0;    // Unix nanoseconds; 0: StartRun takes the clock's
  int64_t ended_at = 0;      // 0: runs, or was killed
};

// A network holds this workload `weight` times.
struct NetworkTask {
  std::string network = {};  // "resnet-18" or the name of the model's file
  std::string workload_key = {};
  std::string workload = {};  // SerializeDag
  std::string task_name = {};
  double weight = 1;
};

// What a network took from end to end on a device, beside what its tasks' times made of it: how far estimates of it are
// off.
struct NetworkLatency {
  std::string network = {};  // as NetworkTask::network
  std::string target = {};   // as TuningRecord::target
  std::string device_model = {};
  double measured = 0, tasks = 0;  // seconds: measured from end to end; the sum of the tasks' times with their counts
  int64_t measured_at = 0;         // Unix nanoseconds; 0: SetLatency takes the clock's
  bool operator==(const NetworkLatency&) const = default;
};

// Which records a query is about; an empty member matches all.
struct RecordFilter {
  std::string target = {};    // the target's text, or its beginning up to a blank: "cuda" matches "cuda -arch=sm_90"
  std::string workload = {};  // workload key or its beginning
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
  bool skip_damaged = false;  // leave out records that cannot be read, instead of stopping at the first
  bool with_host = true;      // the name of the host of each run; else it is empty
  // JSON lines: what writes them. A first line then has that and the runs, and records name theirs by its uuid alone;
  // empty: each line is complete in itself.
  std::string program{};
  // JSON lines: names of a record's parameters, which only search spaces know, for `configuration`; null or nothing:
  // they are not known, and lines have the values alone.
  std::function<std::vector<std::string>(const TuningRecord& record)> names{};
};
struct ExportReport {
  int64_t records = 0;
  std::vector<std::string> damaged;  // with skip_damaged
};
enum class HistoryMode : uint8_t {
  kReadOnly,   // never writes to the file; one of an older version is migrated in memory
  kReadWrite,  // NotFound when there is no file
  kCreate,     // as kReadWrite, and makes the file when there is none
};

struct HistoryOptions {
  std::chrono::milliseconds busy_timeout{30000};  // how long to wait for another process's write
  bool allow_damage = false;              // open although the file is damaged, to save what can be read; kReadOnly only
  std::function<int64_t()> now;           // Unix nanoseconds; default: the system's clock
  std::function<std::string()> new_uuid;  // default: random
  std::shared_ptr<const WriteFence> fence = nullptr;  // of PostgreSQL: every write is refused where it says no
};

// What displays read is in db/trials.h, exports and imports in db/json_lines.h, the check in db/integrity.h, and what
// keeps a history small in db/prune.h.
//
// Safe from any thread, by one lock; a History is not to be used across fork().
class History {
 public:
  // NotFound: no such file or folder. FailedPrecondition: not a history, or of a newer version. DataLoss: damaged.
  // PermissionDenied: may not be read or written. Unavailable: locked for longer than busy_timeout. ResourceExhausted:
  // no room. The other calls return these too when the file changes under them.
  static absl::StatusOr<std::unique_ptr<History>> Open(const std::string& path, HistoryMode mode,
                                                       HistoryOptions options = {});
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Adds all or, on failure, none; returns their ids in order. On OK they are on the disk. InvalidArgument for a record
  // without workload key, target or device model, with a sample or `predicted` that is no positive (no finite) number,
  // with a uuid that is there already, or of an unknown run.
  absl::StatusOr<std::vector<int64_t>> Append(const std::vector<TuningRecord>& records);
  // NotFound for an unknown id.
  absl::StatusOr<TuningRecord> Get(int64_t id);

  // The fastest by median that is not refuted (IsRefuted); those timed in full before those stopped early; the older
  // of two equal ones. Nothing when no measurement succeeded. An empty target matches all of the device's.
  absl::StatusOr<std::optional<TuningRecord>> Best(const std::string& workload_key, const std::string& device_model,
                                                   const std::string& target = "");
  // As Best, but any verified record goes before one not verified yet.
  absl::StatusOr<std::optional<TuningRecord>> BestForBuild(const std::string& workload_key,
                                                           const std::string& device_model,
                                                           const std::string& target = "");
  // The best `k` of each workload, target and device that the filter matches, in the order of Best; groups by workload
  // key, target and device. REQUIRES: k >= 1.
  absl::StatusOr<std::vector<TuningRecord>> TopK(const RecordFilter& filter, int64_t k);
  // All measurements, failed ones too, in the order they were stored: what a tuner resumes from.
  absl::StatusOr<std::vector<TuningRecord>> ForWorkload(const std::string& workload_key,
                                                        const std::string& device_model,
                                                        const std::string& target = "");

  // NotFound for an unknown id. `max_error` of NaN is stored as infinity.
  absl::Status SetVerified(int64_t id, bool ok, double max_error, const std::string& text);
  // The record is right alone and wrong in an assembled network; `text` is the evidence: the network, the output, the
  // largest error (`max_error`, absolute), the tolerance and the seed of the inputs. NotFound as above.
  absl::Status MarkWrongInNetwork(int64_t id, double max_error, const std::string& text);

  // Adds samples of another measurement to those of a record, all of its launches; its time is then the median of all,
  // and it is no longer one that was stopped early. NotFound for an unknown id; FailedPrecondition for a record of a
  // failure; InvalidArgument for samples that are no positive numbers, or none.
  absl::StatusOr<double> AddSamples(int64_t id, const std::vector<double>& samples);

  // Keeps the latency of a network; one that is there for the same network, target and device is replaced. Not part of
  // exports. InvalidArgument for a time that is no positive number.
  absl::Status SetLatency(const NetworkLatency& latency);
  absl::StatusOr<std::optional<NetworkLatency>> Latency(const std::string& network, const std::string& target,
                                                        const std::string& device_model);

  // Notes a run of a tuner; returns its id for the records.
  absl::StatusOr<int64_t> StartRun(const TuningRun& run);
  // Takes the clock's time as its end. NotFound for an unknown id.
  absl::Status EndRun(int64_t run_id);
  absl::StatusOr<std::vector<TuningRun>> Runs();

  // Adds or renews the links from networks to workloads.
  absl::Status LinkNetwork(const std::vector<NetworkTask>& tasks);
  // By network and workload key; an empty name: of all networks.
  absl::StatusOr<std::vector<NetworkTask>> NetworkTasks(const std::string& network = "");

  absl::StatusOr<HistoryInfo> Info();

  // Calls `take` for each record that the options select, in the order of their ids, within one snapshot; counts them.
  // Ends with the first error of `take`, which must not call this history. DataLoss for a damaged record, unless
  // skip_damaged.
  absl::StatusOr<ExportReport> Scan(const ExportOptions& options,
                                    const std::function<absl::Status(const TuningRecord& record)>& take);

  const std::string& path() const;
  // For other sources of this folder: what they read and change the history through.
  HistoryDatabase& database() { return *database_; }

 private:
  explicit History(std::unique_ptr<HistoryDatabase> database);
  std::unique_ptr<HistoryDatabase> database_;
};

}  // namespace diapason
