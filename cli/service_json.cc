#include "cli/service_json.h"

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/document.h"
#include "diapason/v1/tuning.pb.h"
#include "service/service_client.h"

namespace diapason {

Json JobJson(const v1::Job& job) {
  const v1::JobProgress& p = job.progress();
  Json tasks = Json::array(), errors = Json::object();
  auto number = [](bool has, double value) { return has ? Json(value) : Json(nullptr); };
  for (const v1::TaskProgress& task : p.tasks()) {
    tasks.push_back({{"task_id", task.id()},
                     {"task", task.name()},
                     {"count", task.weight()},
                     {"trials", task.trials()},
                     {"failed", task.failed()},
                     {"best_us", number(task.has_best_us(), task.best_us())},
                     {"fallback_us", number(task.has_fallback_us(), task.fallback_us())},
                     {"verified", task.verified()},
                     {"record", task.record() > 0 ? Json(task.record()) : Json(nullptr)},
                     {"sketch", task.sketch()}});
  }
  for (const auto& [kind, count] : p.errors()) errors[kind] = count;
  Json check = nullptr;
  if (p.has_network_check()) {
    const v1::NetworkCheckOutcome& c = p.network_check();
    check = {{"ok", c.right()},
             {"text", c.text()},
             {"elapsed_s", c.seconds()},
             {"latency_us", number(c.latency_us() > 0, c.latency_us())},
             {"problems", Json::array()}};
    for (const std::string& sentence : c.wrong_records()) check["problems"].push_back(sentence);
  }
  Json dims = Json::object();
  for (const auto& [symbol, sizes] : job.spec().dims())
    dims[symbol] = std::vector<int64_t>(sizes.sizes().begin(), sizes.sizes().end());
  return {{"job", job.id()},
          {"state", JobStateName(job)},
          {"owner", job.owner()},
          {"text", job.text()},
          {"model", job.spec().model()},
          {"dims", dims},
          {"target", job.spec().target()},
          {"priority", job.spec().priority()},
          {"weight", job.spec().weight()},
          {"submitted_at", Instant(job.submitted_at())},
          {"started_at", Instant(job.started_at())},
          {"ended_at", Instant(job.ended_at())},
          {"trials", p.trials()},
          {"measured", p.measured()},
          {"failed", p.failed()},
          {"elapsed_s", p.seconds()},
          {"trials_per_s", p.trials_per_second()},
          {"estimated_us", number(p.has_estimated_us(), p.estimated_us())},
          {"estimated_fallback_us", number(p.has_estimated_fallback_us(), p.estimated_fallback_us())},
          {"tasks", tasks},
          {"errors", errors},
          {"stop_reason", p.stopped()},
          {"warnings", std::vector<std::string>(p.warnings().begin(), p.warnings().end())},
          {"check", check}};
}

bool Drifts(double drift) { return drift > 0 && (drift > 1.1 || drift < 1 / 1.1); }

Json FleetJson(const FleetStatus& status) {
  Json models = Json::array(), devices = models, queues = models;
  for (const auto& m : status.models) {
    models.push_back({{"target_kind", m.kind},
                      {"device", m.model},
                      {"total", m.total},
                      {"free", m.free},
                      {"pending", m.pending},
                      {"quarantined", m.quarantined}});
  }
  for (const auto& d : status.devices) {
    Json labels = Json::object();
    for (const auto& [key, value] : d.labels) labels[key] = value;
    devices.push_back({{"host", d.host},
                       {"worker", d.worker},
                       {"labels", labels},
                       {"name", d.name},
                       {"target", d.target},
                       {"device", d.model},
                       {"uuid", d.uuid},
                       {"state", d.state},
                       {"reason", d.why},
                       {"leases", d.leases},
                       {"runs", d.runs},
                       {"trials_per_s", d.trials_per_second},
                       {"utilisation", d.utilisation},
                       {"error_rate", d.error_rate},
                       {"drift", d.drift > 0 ? Json(d.drift) : Json(nullptr)},
                       {"drifts", Drifts(d.drift)},
                       {"excluded", d.excluded},
                       {"last_seen_s", d.last_seen_seconds}});
  }
  for (const auto& q : status.queues) {
    queues.push_back({{"queue", q.name},
                      {"priority", q.priority},
                      {"weight", q.weight},
                      {"pending", q.pending},
                      {"leased", q.leased},
                      {"done", q.done}});
  }
  return Json{{"device_models", models}, {"devices", devices}, {"queues", queues}};
}

}  // namespace diapason
