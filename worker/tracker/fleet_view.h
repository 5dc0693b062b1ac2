// What a tracker tells people, and Prometheus, of its workers, devices and queues.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/rpc/metrics.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/model.h"
#include "worker/tracker/queue_table.h"
#include "worker/tracker/totals.h"
#include "worker/tracker/worker_table.h"

namespace diapason::tracker {

// Changes nothing.
class FleetView {
 public:
  FleetView(const AwakeClock& clock, const QueueTable& queues, const WorkerTable& workers, const Totals& totals)
      : clock_(clock), queues_(queues), workers_(workers), totals_(totals) {}

  // The page that begins after `page`, of `most_bytes` and one element more. InvalidArgument: no such page.
  absl::Status List(const std::string& page, size_t most_bytes, v1::ListWorkersResponse& response) const;
  std::vector<Metric> Metrics() const;

 private:
  // False when the page is full: the next one begins behind this key.
  using Fits = std::function<bool(char part, const std::string& key, size_t size)>;

  // Each adds what comes behind `last`; false when the page is full.
  bool ListSessions(const std::string& last, const Fits& fits, v1::ListWorkersResponse& response) const;
  bool ListQueues(const std::string& last, const Fits& fits, v1::ListWorkersResponse& response) const;
  bool ListModels(const std::string& last, const Fits& fits, v1::ListWorkersResponse& response) const;
  std::map<std::string, v1::ModelStatus> Models() const;
  std::vector<Metric> Numbers(const v1::ListWorkersResponse& fleet) const;

  const AwakeClock& clock_;
  const QueueTable& queues_;
  const WorkerTable& workers_;
  const Totals& totals_;
};

}  // namespace diapason::tracker
