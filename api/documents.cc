#include "api/documents.h"

#include <optional>

namespace diapason::api {
namespace {

Json MeasurementFields(const Explanation& e) {
  if (e.failed.has_value())
    return {{"error_kind", e.failed->kind}, {"stage", e.failed->stage}, {"text", e.failed->text}};
  if (!e.measured.has_value()) return nullptr;
  return {{"median_us", e.measured->median_us},
          {"samples_us", e.measured->samples_us},
          {"runs_per_sample", e.measured->runs_per_sample},
          {"stopped_early", e.measured->stopped_early}};
}

Json TaskFields(const TaskProgress& task) {
  return {{"task_id", task.id},
          {"task", task.name},
          {"count", task.count},
          {"trials", task.trials},
          {"failed", task.failed},
          {"best_us", OrNull(task.best_us)},
          {"fallback_us", OrNull(task.fallback_us)},
          {"verified", task.verified},
          {"record", OrNull(task.record)},
          {"sketch", task.sketch}};
}

Json JobCheckFields(const std::optional<JobCheck>& check) {
  if (!check.has_value()) return nullptr;
  return {{"ok", check->ok},
          {"text", check->text},
          {"elapsed_s", check->elapsed_s},
          {"latency_us", OrNull(check->latency_us)},
          {"problems", check->problems}};
}

Json DeviceFields(const FleetStatus::Device& d) {
  Json labels = Json::object();
  for (const auto& [key, value] : d.labels) labels[key] = value;
  return {{"host", d.host},
          {"worker", d.worker},
          {"labels", labels},
          {"name", d.name},
          {"target", d.target},
          {"device", d.model},
          {"uuid", d.uuid},
          {"state", d.state},
          {"reason", d.reason},
          {"leases", d.leases},
          {"runs", d.runs},
          {"trials_per_s", d.trials_per_s},
          {"utilisation", d.utilisation},
          {"error_rate", d.error_rate},
          {"drift", d.drift > 0 ? Json(d.drift) : Json(nullptr)},
          {"drifts", d.drifts()},
          {"excluded", d.excluded},
          {"last_seen_s", d.last_seen_s}};
}

}  // namespace

Json ExplanationFields(const Explanation& e) {
  Json configuration = Json::array(), features = Json::array();
  for (const auto& [name, value] : e.configuration) configuration.push_back({{"name", name}, {"value", value}});
  for (const auto& [name, value] : e.features) features.push_back({{"name", name}, {"value", value}});
  const bool recorded = e.record > 0;
  Json json = {{"record", recorded ? Json(e.record) : Json(nullptr)},
               {"workload", e.workload},
               {"task", e.task},
               {"target", e.target},
               {"device", e.device},
               {"trial", recorded ? Json(e.trial) : Json(nullptr)},
               {"algorithm", e.algorithm},
               {"sketch", e.sketch},
               {"configuration", configuration},
               {"steps", e.steps},
               {"computation", e.computation},
               {"rewrite", e.rewrite},
               {"loops", e.loops},
               {"source", e.source},
               {"predicted_us", OrNull(e.predicted_us)},
               {"measurement", MeasurementFields(e)},
               {"verified", e.verification == "ok"},
               {"verification", e.verification}};
  if (e.analytic_us.has_value()) {
    json["analytic_us"] = *e.analytic_us;
    json["features"] = features;
  }
  json["shares"] = Json::array();
  for (const Explanation::Share& one : e.shares)
    json["shares"].push_back({{"network", one.network}, {"count", one.count}, {"share", one.share}});
  for (const auto& [name, time_us] : e.sketch_times)
    json["sketches"].push_back({{"name", name}, {"analytic_us", time_us}});
  if (!e.problem.empty()) json["problem"] = e.problem;
  return json;
}

Json JobFields(const Job& job) {
  const Progress p = job.progress.value_or(Progress());
  Json tasks = Json::array(), errors = Json::object(), dims = Json::object();
  for (const TaskProgress& task : p.tasks) tasks.push_back(TaskFields(task));
  for (const auto& [kind, count] : p.errors) errors[kind] = count;
  for (const auto& [symbol, sizes] : job.dims) dims[symbol] = sizes;
  return {{"job", job.id},
          {"state", job.state},
          {"owner", job.owner},
          {"text", job.text},
          {"model", job.model},
          {"dims", dims},
          {"target", job.target},
          {"priority", job.priority},
          {"weight", job.weight},
          {"submitted_at", Instant(job.submitted_at)},
          {"started_at", Instant(job.started_at)},
          {"ended_at", Instant(job.ended_at)},
          {"trials", p.trials},
          {"measured", p.measured},
          {"failed", p.failed},
          {"elapsed_s", p.elapsed_s},
          {"trials_per_s", p.trials_per_s},
          {"estimated_us", OrNull(p.estimated_us)},
          {"estimated_fallback_us", OrNull(p.estimated_fallback_us)},
          {"tasks", tasks},
          {"errors", errors},
          {"stop_reason", job.stop_reason},
          {"warnings", job.warnings},
          {"check", JobCheckFields(job.check)}};
}

Json FleetFields(const FleetStatus& status) {
  Json models = Json::array(), devices = models, queues = models;
  for (const FleetStatus::Model& m : status.models) {
    models.push_back({{"target_kind", m.kind},
                      {"device", m.model},
                      {"total", m.total},
                      {"free", m.free},
                      {"pending", m.pending},
                      {"quarantined", m.quarantined}});
  }
  for (const FleetStatus::Device& d : status.devices) devices.push_back(DeviceFields(d));
  for (const FleetStatus::Queue& q : status.queues) {
    queues.push_back({{"queue", q.name},
                      {"priority", q.priority},
                      {"weight", q.weight},
                      {"pending", q.pending},
                      {"leased", q.leased},
                      {"done", q.done}});
  }
  return Json{{"device_models", models}, {"devices", devices}, {"queues", queues}};
}

}  // namespace diapason::api
