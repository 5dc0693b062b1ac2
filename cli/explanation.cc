#include "cli/explanation.h"

#include "base/json.h"
#include "cli/document.h"

namespace diapason {
namespace {

Json MeasurementJson(const api::Explanation& e) {
  if (e.failed.has_value())
    return {{"error_kind", e.failed->kind}, {"stage", e.failed->stage}, {"text", e.failed->text}};
  if (!e.measured.has_value()) return nullptr;
  return {{"median_us", e.measured->median_us},
          {"samples_us", e.measured->samples_us},
          {"runs_per_sample", e.measured->runs_per_sample},
          {"stopped_early", e.measured->stopped_early}};
}

}  // namespace

Json ExplanationJson(const api::Explanation& e) {
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
               {"measurement", MeasurementJson(e)},
               {"verified", e.verification == "ok"},
               {"verification", e.verification}};
  if (e.analytic_us.has_value()) {
    json["analytic_us"] = *e.analytic_us;
    json["features"] = features;
  }
  json["shares"] = Json::array();
  for (const api::Explanation::Share& one : e.shares)
    json["shares"].push_back({{"network", one.network}, {"count", one.count}, {"share", one.share}});
  for (const auto& [name, time_us] : e.sketch_times)
    json["sketches"].push_back({{"name", name}, {"analytic_us", time_us}});
  if (!e.problem.empty()) json["problem"] = e.problem;
  return json;
}

}  // namespace diapason
