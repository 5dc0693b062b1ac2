// Histories: what was measured. See model.h; docs/history.md describes the file.
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
  std::string uuid;      // the same in every file
  std::string workload;  // key
  std::string task;      // for people
  std::string target, device;
  double median_us = 0;
  std::vector<double> samples_us;
  bool stopped_early = false;     // stopped early, since it was clearly slower than the best
  int64_t trial = 0;              // position within its task, from 0
  std::string verification;       // "unknown", "ok", "failed", "wrong_in_network"
  std::string algorithm, sketch;  // "winograd(4)", "winograd(4)/tile0"
  uint64_t seed = 0;
  int64_t created_at = 0;  // Unix time in nanoseconds
  // Where a network was asked for: how often it has the task (0: in fusion alternatives), and which share of the
  // network's time, on this target and device, the task takes with the best of the records found. Nothing: no network
  // was asked for.
  std::optional<double> count, share;

  bool verified() const { return verification == "ok"; }
};

// Which records are wanted; an empty member matches all.
struct RecordQuery {
  std::string target;    // "cuda" matches "cuda -arch=sm_90" too
  std::string workload;  // a key or its beginning
  std::string device;    // model
  std::string network;   // "resnet-18", or a model's file
};

struct HistorySummary {
  std::string path;
  int schema_version = 0;
  int64_t file_bytes = 0, record_count = 0, failed = 0, runs = 0;
  std::vector<std::string> networks, devices;
};

// A history that is read. Safe from any thread. Others may write to the file meanwhile.
class History {
 public:
  // NotFound: no such file. FailedPrecondition: no history, or of a newer version. DataLoss: damaged. The other calls
  // return these too when the file changes under them.
  static absl::StatusOr<std::unique_ptr<History>> Open(const std::string& path);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // The best `top` of each workload, target and device, the fastest first; none that is known to be wrong. With a
  // network, the workloads come by their share of its time, the largest first. InvalidArgument: the target does not
  // parse, or `top` is below 1; NotFound: no such network.
  absl::StatusOr<std::vector<Record>> Query(const RecordQuery& query, int64_t top = 1);
  // The best of one workload by its whole key, verified records before others: what a build for the device takes if it
  // is verified. Nothing: no record.
  absl::StatusOr<std::optional<Record>> Best(const std::string& workload, const std::string& device,
                                             const std::string& target = "");
  absl::StatusOr<HistorySummary> Summary();

 private:
  class Impl;
  explicit History(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// As History::Query, of the history of a service (`diapason serve`). Unavailable: it does not answer; PermissionDenied:
// without TLS or `insecure` beyond this host, or the service refuses.
absl::StatusOr<std::vector<Record>> QueryService(const Endpoint& service, const RecordQuery& query, int64_t top = 1);

}  // namespace diapason::api
