// Histories, which hold all measurements: queries, checks, exports, imports, copies and pruning. See model.h;
// docs/history.md describes the formats. A history is a file or a PostgreSQL database ("postgresql://...").
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

// What messages, records and files call a history: its path, or its URI without passwords.
std::string HistoryName(const std::string& history);
// Whether a history is named by the URI of a database, not by a path.
bool IsDatabase(const std::string& history);

// A measurement that succeeded.
struct Record {
  int64_t id = 0;
  std::string uuid;      // the same in every copy of the record
  std::string workload;  // key
  std::string task;      // its name
  std::string target, device;
  double median_us = 0;
  std::vector<double> samples_us;
  bool stopped_early = false;     // stopped early, since it was clearly slower than the best
  int64_t trial = 0;              // position within its task, from 0
  std::string verification;       // "unknown", "ok", "failed", "wrong_in_network"
  std::string algorithm, sketch;  // "winograd(4)", "winograd(4)/tile0"
  uint64_t seed = 0;
  int64_t created_at = 0;  // Unix time in nanoseconds
  // If the query names a network: occurrences of the task in it (0: only in fusion alternatives), and the task's share
  // of the network's time on this target and device, with the best of the records found. Else nothing.
  std::optional<double> count, share;

  bool verified() const { return verification == "ok"; }
};

// Selects records; an empty member matches all.
struct RecordQuery {
  std::string target;    // "cuda" also matches "cuda -arch=sm_90"
  std::string workload;  // a key or a prefix of it
  std::string device;    // model
  std::string network;   // "resnet-18", or the path of a model
};

struct HistorySummary {
  struct Workload {  // on one target and device
    std::string workload, task, target, device;
    int64_t record_count = 0, failed = 0, verified_count = 0;
    std::optional<double> best_us;  // median of the best record
  };
  struct Device {
    std::string device;  // model
    std::string uuid;    // empty: it has none
    int64_t record_count = 0;
  };
  struct Network {
    std::string network;
    int64_t task_count = 0;
  };
  std::string path;  // without a password
  int schema_version = 0;
  int64_t file_bytes = 0;  // with the write-ahead log
  int64_t record_count = 0, failed = 0, runs = 0;
  int64_t first_at = 0, last_at = 0;  // Unix time in nanoseconds of the oldest and newest record; 0: none
  std::vector<std::pair<std::string, int64_t>> errors;  // failed records by kind of error, the most frequent first
  std::vector<Workload> workloads;                      // by key, target and device
  std::vector<Device> devices;                          // by model and UUID
  std::vector<Network> networks;                        // by name
};

// Read access to a history. Safe from any thread; other processes may write to the history at the same time.
class History {
 public:
  // NotFound: no such file. FailedPrecondition: not a history, or of a newer version. DataLoss: damaged. The other
  // calls return these too if the file changes after it was opened.
  static absl::StatusOr<std::unique_ptr<History>> Open(const std::string& path);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // The best `top` records of each workload, target and device, the fastest first, without those known to be wrong. If
  // the query names a network, workloads are sorted by their share of its time, the largest first. InvalidArgument: the
  // target does not parse, or `top` is below 1; NotFound: no such network.
  absl::StatusOr<std::vector<Record>> Query(const RecordQuery& query, int64_t top = 1);
  // The best record of the workload with this whole key; verified records rank before others. A build for the device
  // uses it if it is verified. Nothing: no record.
  absl::StatusOr<std::optional<Record>> Best(const std::string& workload, const std::string& device,
                                             const std::string& target = "");
  absl::StatusOr<HistorySummary> Summary();

 private:
  class Impl;
  explicit History(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// History::Query of the history of a service (`diapason serve`). Unavailable: it does not answer; PermissionDenied: the
// service refuses, or it is on another host and neither TLS nor `insecure` is given.
absl::StatusOr<std::vector<Record>> QueryService(const Endpoint& service, const RecordQuery& query, int64_t top = 1);

// What is damaged in a history.
struct HistoryProblems {
  int64_t record_count = 0;
  std::vector<std::string> problems;  // one sentence each, at most 1000 and then their number
  bool ok() const { return problems.empty(); }
};
// Reads everything: SQLite's integrity check, each record's checksum and fields, whether workloads and schedules can
// still be read. Works on damaged files that History::Open refuses. Errors: the file is missing, unreadable or no
// history at all.
absl::StatusOr<HistoryProblems> CheckHistory(const std::string& path);

struct HistoryExport {
  std::string format = "jsonl";  // lines that ImportHistory reads; or "t4": one document of Kernel Tuner's T4 schema
  RecordQuery records;           // which ones
  bool skip_damaged = false;     // leave out what cannot be read, instead of stopping there
  bool with_host = false;        // include the names of the hosts that measured
};
struct ExportedRecords {
  int64_t record_count = 0;
  std::vector<std::string> damaged;  // with skip_damaged: a sentence for each record that was left out
};
// InvalidArgument: unknown format, or a target that does not parse; DataLoss: damaged, without skip_damaged, or
// no record can be read; ResourceExhausted: `out` takes no more. What was written until then stays.
absl::StatusOr<ExportedRecords> ExportHistory(const std::string& path, const HistoryExport& options, std::ostream& out);
// The same to a file, which appears when it is whole. An earlier export there is replaced, and kept if there is an
// error. AlreadyExists: another file is there, such as a history; Unavailable: the file cannot be written.
absl::StatusOr<ExportedRecords> ExportHistoryToFile(const std::string& path, const HistoryExport& options,
                                                    const std::string& file);

struct ImportedRecords {
  int64_t lines = 0, added = 0;
  int64_t known = 0;                 // records that were there already, by UUID
  int64_t updated = 0;               // of these, those that gained their verification
  std::vector<std::string> damaged;  // with skip_damaged: a sentence for each line that was left out
};
// Adds the records of JSON lines, in one transaction; the history is made when there is none. `name` is what messages
// call the input. InvalidArgument names the line that is damaged: then nothing is imported.
absl::StatusOr<ImportedRecords> ImportHistory(const std::string& path, std::istream& in, const std::string& name,
                                              bool skip_damaged = false);

struct CopiedRecords {
  int64_t added = 0, known = 0, updated = 0;  // as ImportedRecords
  int64_t latencies = 0;                      // latencies of networks that were added or replaced older ones
};
// Adds to the history `to`, which is made when there is none, what only `from` has, in one transaction; after an error
// `to` is unchanged.
absl::StatusOr<CopiedRecords> CopyHistory(const std::string& from, const std::string& to);

struct PrunedRecords {
  int64_t kept = 0, dropped = 0;
  int64_t bytes_before = 0, bytes_after = 0;
};
// Keeps the best `keep` records of each workload, target and device, in the new file `out`, or in the history itself
// when `out` is empty. InvalidArgument: `keep` is below 1; AlreadyExists: there is such a file; FailedPrecondition: the
// history is a database and `out` a file.
absl::StatusOr<PrunedRecords> PruneHistory(const std::string& path, int64_t keep, const std::string& out = "");

}  // namespace diapason::api
