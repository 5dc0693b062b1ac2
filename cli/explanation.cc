#include "cli/explanation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "api/record.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/parameter_names.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "compiler/schedule/rewrite.h"
#include "compiler/tensor/serialize.h"
#include "scheduler/sketch/feature_names.h"
#include "scheduler/space.h"
#include "service/records.h"

namespace diapason {
namespace {

constexpr char kParameter[] = "parameter ";  // begins the names of features that are values of parameters

void ExplainNumbers(const Target& target, const DeviceFacts& facts, Explanation* e) {
  const auto spaces = TaskSpace::Create(e->dag, target, facts);
  const Space* space = spaces.ok() ? SpaceOf(**spaces, e->schedule, e->record) : nullptr;
  for (size_t i = 0; i < e->schedule.configuration.size(); ++i) {
    const std::string name =
        space != nullptr ? space->parameter_name(static_cast<int>(i)) : absl::StrCat("parameter ", i);
    e->configuration.emplace_back(name, e->schedule.configuration[i]);
  }
  if (space == nullptr) return;
  Metrics metrics;
  space->Evaluate(e->schedule.configuration, &metrics);
  e->analytic_seconds = metrics.seconds;
  const std::vector<std::string> names = FeatureNames(target);
  for (int i = 0; i < kNumFeatures; ++i) {
    const int parameter = i - kParameterFeaturesAt;
    if (names[i].empty() || parameter >= space->size()) continue;
    e->features.emplace_back(parameter < 0 ? names[i] : absl::StrCat(kParameter, space->parameter_name(parameter)),
                             metrics.features[i]);
  }
}

absl::Status ExplainProgram(const Target& target, const DeviceFacts& facts, Explanation* e) {
  ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(e->dag, e->schedule, target, facts));
  for (const auto* kernels : {&lowered.prologue, &lowered.kernels}) {
    for (const KernelFunc& kernel : *kernels) absl::StrAppend(&e->loops, ToString(kernel), "\n");
  }
  e->source = PrintSource(lowered, target);
  return absl::OkStatus();
}

// The largest share first.
absl::StatusOr<std::vector<Explanation::Share>> SharesOf(History& history, const TuningRecord& record) {
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> links, history.NetworkTasks());
  std::vector<Explanation::Share> shares;
  for (const NetworkTask& link : links) {
    if (link.workload_key != record.workload_key) continue;
    RecordFilter filter;
    filter.target = record.target;
    filter.device_model = record.device_model;
    filter.network = link.network;
    ASSIGN_OR_RETURN(const std::vector<TuningRecord> best, history.TopK(filter, 1));
    ASSIGN_OR_RETURN(const auto counts, CountsOf(history, link.network));
    std::vector<api::Record> records;
    for (const TuningRecord& one : best) records.push_back(api::RecordOf(one));
    api::RankByShare(counts, records);
    for (const api::Record& one : records)
      if (one.workload == record.workload_key) shares.push_back({link.network, link.weight, one.share.value_or(0)});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return shares;
}

absl::StatusOr<Explanation> Explain(TuningRecord record) {
  Explanation e;
  e.record = std::move(record);
  ASSIGN_OR_RETURN(e.dag, ParseDag(e.record.workload));
  ASSIGN_OR_RETURN(e.schedule, ParseSchedule(e.record.schedule));
  ASSIGN_OR_RETURN(const Target target, Target::Parse(e.record.target));
  CompleteExplanation(target, ResolveFacts(target), &e);
  return e;
}

Json MeasurementJson(const TuningRecord& record) {
  if (const Timing* timing = record.timing()) {
    Json samples = Json::array();
    for (double sample : timing->samples) samples.push_back(sample * 1e6);
    return {{"median_us", MedianSeconds(*timing) * 1e6},
            {"samples_us", samples},
            {"runs_per_sample", timing->number},
            {"stopped_early", timing->stopped_early}};
  }
  const MeasureError& error = *record.error();
  return {{"error_kind", ErrorKindName(error.kind)}, {"stage", StageName(error.stage)}, {"text", error.text}};
}

}  // namespace

void CompleteExplanation(const Target& target, const DeviceFacts& facts, Explanation* e) {
  e->computation = e->dag.ToString();
  if (const auto rewritten = ApplyRewrite(e->dag, e->schedule.rewrite); rewritten.ok()) {
    e->rewrite = rewritten->ToString();
    if (e->rewrite == e->computation) e->rewrite.clear();
  }
  for (const Step& step : e->schedule.steps) absl::StrAppend(&e->steps, ToString(step), "\n");
  ExplainNumbers(target, facts, e);
  e->problem = std::string(ExplainProgram(target, facts, e).message());
}

Json ExplanationJson(const Explanation& e) {
  Json configuration = Json::array(), features = Json::array();
  for (const auto& [name, value] : e.configuration) configuration.push_back({{"name", name}, {"value", value}});
  for (const auto& [name, value] : e.features) features.push_back({{"name", name}, {"value", value}});
  const bool recorded = e.record.id > 0;
  Json json = {{"record", recorded ? Json(e.record.id) : Json(nullptr)},
               {"workload", e.record.workload_key},
               {"task", e.record.task_name},
               {"target", e.record.target},
               {"device", e.record.device_model},
               {"trial", recorded ? Json(e.record.trial) : Json(nullptr)},
               {"algorithm", e.schedule.rewrite.ToString()},
               {"sketch", e.schedule.sketch},
               {"configuration", configuration},
               {"steps", e.steps},
               {"computation", e.computation},
               {"rewrite", e.rewrite},
               {"loops", e.loops},
               {"source", e.source},
               {"predicted_us", e.record.predicted ? Json(*e.record.predicted * 1e6) : Json(nullptr)},
               {"measurement", recorded ? MeasurementJson(e.record) : Json(nullptr)},
               {"verified", e.record.verified == Verified::kOk},
               {"verification", VerifiedName(e.record.verified)}};
  if (e.analytic_seconds.has_value()) {
    json["analytic_us"] = *e.analytic_seconds * 1e6;
    json["features"] = features;
  }
  json["shares"] = Json::array();
  for (const Explanation::Share& one : e.shares)
    json["shares"].push_back({{"network", one.network}, {"count", one.count}, {"share", one.share}});
  for (const auto& [name, seconds] : e.sketches)
    json["sketches"].push_back({{"name", name}, {"analytic_us", seconds * 1e6}});
  if (!e.problem.empty()) json["problem"] = e.problem;
  return json;
}

absl::StatusOr<Explanation> ExplainRecord(History& history, int64_t id) {
  ASSIGN_OR_RETURN(TuningRecord record, history.Get(id));
  ASSIGN_OR_RETURN(Explanation explanation, Explain(std::move(record)));
  ASSIGN_OR_RETURN(explanation.shares, SharesOf(history, explanation.record));
  return explanation;
}

}  // namespace diapason
