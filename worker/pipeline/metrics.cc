#include "worker/pipeline/metrics.h"

#include <utility>

#include "diapason/v1/tracker.pb.h"

namespace diapason {

std::vector<Metric> PipelineMetrics(Pipeline& pipeline) {
  const v1::WorkerStatistics s = pipeline.Statistics();
  auto count = [](uint64_t number) { return static_cast<double>(number); };
  std::vector<Metric> metrics = {
      Metric::Counter("diapason_worker_builds_total", "Builds that ended", count(s.builds())),
      Metric::Counter("diapason_worker_builds_failed_total", "Of these, those that failed", count(s.failed_builds())),
      Metric::Counter("diapason_worker_builder_busy_seconds_total", "Time at work, of all builders",
                      s.builder_busy_seconds()),
      Metric::Counter("diapason_worker_builder_restarts_total", "Builders started again", count(s.builder_restarts())),
      Metric::Counter("diapason_worker_runner_restarts_total", "Runners started again", count(s.runner_restarts())),
      Metric::Gauge("diapason_worker_waiting_for_builder", "Measurements that wait for a builder",
                    s.waiting_for_builder()),
      Metric::Gauge("diapason_worker_waiting_for_runner", "Measurements that wait for their device",
                    s.waiting_for_runner()),
  };
  Metric runs{"diapason_worker_runs_total", "Runs on a device", Metric::Type::kCounter, {}};
  Metric failed{"diapason_worker_runs_failed_total", "Of these, those that failed", Metric::Type::kCounter, {}};
  Metric busy{
      "diapason_worker_device_busy_seconds_total", "Time that a device was at work", Metric::Type::kCounter, {}};
  for (const v1::DeviceStatistics& device : pipeline.DeviceCounts()) {
    const Metric::Labels labels = {{"device", device.device()}};
    runs.values.push_back({labels, count(device.runs()), {}});
    failed.values.push_back({labels, count(device.failed_runs()), {}});
    busy.values.push_back({labels, device.busy_seconds(), {}});
  }
  Metric ready{"diapason_worker_device_ready", "1 while a device takes work", Metric::Type::kGauge, {}};
  for (const v1::DeviceStatus& device : pipeline.DeviceStates())
    ready.values.push_back({{{"device", device.device()}}, device.state() == v1::DEVICE_STATE_READY ? 1.0 : 0.0, {}});
  for (Metric* metric : {&runs, &failed, &busy, &ready}) metrics.push_back(std::move(*metric));
  return metrics;
}

}  // namespace diapason
