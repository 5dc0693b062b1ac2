// Histories, which hold all measurements. See model.h; docs/history.md describes the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

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
  std::string path;
  int schema_version = 0;
  int64_t file_bytes = 0, record_count = 0, failed = 0, runs = 0;
  std::vector<std::string> networks, devices;
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

}  // namespace diapason::api
