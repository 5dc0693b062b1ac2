// What the tracker tells Prometheus.
#include "worker/convert.h"
#include "worker/tracker_impl.h"

namespace diapason {
namespace {

double StageSeconds(int64_t began, int64_t ended) { return began > 0 ? static_cast<double>(ended - began) * 1e-9 : -1; }

}  // namespace

void Tracker::Impl::CountOutcome(const v1::MeasureResult& result) {
  ++outcomes_[OutcomeName(result)];
  const v1::StageTimes& times = result.times();
  queued_.Add(times.queued_seconds());
  if (times.build_ended_at() > 0) build_.Add(StageSeconds(times.build_started_at(), times.build_ended_at()));
  if (times.run_ended_at() > 0) run_.Add(StageSeconds(times.run_started_at(), times.run_ended_at()));
}

std::vector<Metric> Tracker::Impl::Metrics() {
  v1::ListWorkersResponse fleet;
  ListWorkers(/*page=*/"", ~size_t{0}, fleet).IgnoreError();  // the first page, of any size
  double pending = 0, leased = 0;
  for (const v1::QueueStatus& queue : fleet.queues()) {
    pending += queue.pending();
    leased += queue.leased();
  }
  double oldest = 0;
  for (const auto& [id, queue] : queues_)
    for (const auto& [number, request] : queue->unfinished)
      oldest = std::max(oldest, SecondsBetween(request->submitted, Now()));
  std::vector<Metric> metrics = {
      Metric::Gauge("diapason_tracker_workers", "Workers with a session", fleet.workers_size()),
      Metric::Gauge("diapason_tracker_queues", "Tuners with a queue", fleet.queues_size()),
      Metric::Gauge("diapason_tracker_requests_pending", "Measurements that wait for a device", pending),
      Metric::Gauge("diapason_tracker_requests_leased", "Measurements that a worker has", leased),
      Metric::Gauge("diapason_tracker_oldest_request_seconds", "Age of the oldest measurement without a result",
                    oldest),
      Metric::Gauge("diapason_tracker_stored_bytes", "Requests and results held", static_cast<double>(stored_bytes_)),
      Metric::Counter("diapason_tracker_leases_total", "Leases granted", static_cast<double>(granted_)),
      Metric::Counter("diapason_tracker_leases_expired_total", "Leases that were not renewed",
                      static_cast<double>(expired_)),
      Metric::Counter("diapason_tracker_shared_total",
                      "Measurements that were not run, since another queue's was taken", static_cast<double>(shared_)),
      Metric::Counter("diapason_tracker_bad_outcomes_total", "Answers of workers that can be no outcome",
                      static_cast<double>(bad_outcomes_)),
  };
  Metric devices{"diapason_tracker_devices", "Devices by model and state", Metric::Type::kGauge, {}};
  for (const v1::ModelStatus& model : fleet.models()) {
    if (model.total() == 0) continue;
    for (const auto& [state, count] : {std::pair{"free", model.free()},
                                       {"quarantined", model.quarantined()},
                                       {"busy", model.total() - model.free() - model.quarantined()}}) {
      devices.values.push_back(
          {{{"kind", model.kind()}, {"model", model.model()}, {"state", state}}, static_cast<double>(count), {}});
    }
  }
  metrics.push_back(std::move(devices));
  Metric busy{"diapason_tracker_device_utilisation_ratio",
              "Share of the last minute that a device was at work, 0 to 1",
              Metric::Type::kGauge,
              {}};
  for (const v1::WorkerStatus& worker : fleet.workers())
    for (const v1::DeviceRates& rates : worker.rates())
      busy.values.push_back({{{"worker", worker.name()}, {"device", rates.device()}}, rates.utilisation(), {}});
  metrics.push_back(std::move(busy));
  Metric outcomes{"diapason_tracker_outcomes_total", "Measurements by how they ended", Metric::Type::kCounter, {}};
  for (const auto& [kind, count] : outcomes_)
    outcomes.values.push_back({{{"kind", kind}}, static_cast<double>(count), {}});
  metrics.push_back(std::move(outcomes));
  metrics.push_back(
      {"diapason_tracker_stage_seconds",
       "Time of a measurement in a stage",
       Metric::Type::kHistogram,
       {{{{"stage", "queued"}}, 0, queued_}, {{{"stage", "build"}}, 0, build_}, {{{"stage", "run"}}, 0, run_}}});
  return metrics;
}

}  // namespace diapason
