// diapason explain: one record of a history in readable form.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "api/record.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "compiler/schedule/step.h"
#include "compiler/schedule/view.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/sketch/feature_names.h"
#include "scheduler/space.h"
#include "service/records.h"

namespace diapason {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kDecision[] = "decision ";  // begins the names of features that are decisions
constexpr char kLog[] = " log2";           // ends those of logarithms

struct ExplainFlags {
  std::string history;
  int64_t record = 0;
  bool json = false;
};

// What can be told of a record. A part that cannot be made (an error's record may not lower) stays empty, and `problem`
// says why.
struct Explanation {
  TuningRecord record;
  ComputeDag dag;
  Schedule schedule;
  std::vector<std::pair<std::string, int32_t>>
      decisions;  // names of the holes; empty names when the sketch is not known
  std::string computation, steps, loops, source, problem;
  std::optional<double> analytic_seconds;
  std::vector<std::pair<std::string, float>> features;  // by name
  struct Share {
    std::string network;
    double count = 0, share = 0;
  };
  std::vector<Share>
      shares;  // of the networks that hold the task, with their best records on the same target and device
};

// The space that the record's candidate is from; null when this version has none of the name.
const Space* SpaceOf(const TaskSpace& spaces, const Schedule& schedule, const TuningRecord& record) {
  for (const std::string& name : {schedule.sketch, record.sketch, record.view + "/" + record.sketch}) {
    const int index = spaces.Find(name);
    if (index >= 0 && spaces.space(index).size() == static_cast<int>(schedule.decisions.size()))
      return &spaces.space(index);
  }
  return nullptr;
}

void ExplainNumbers(const Target& target, const DeviceFacts& facts, Explanation* e) {
  const auto spaces = TaskSpace::Create(e->dag, target, facts);
  const Space* space = spaces.ok() ? SpaceOf(**spaces, e->schedule, e->record) : nullptr;
  for (size_t i = 0; i < e->schedule.decisions.size(); ++i) {
    const std::string name = space != nullptr ? space->hole_name(static_cast<int>(i)) : absl::StrCat("decision ", i);
    e->decisions.emplace_back(name, e->schedule.decisions[i]);
  }
  if (space == nullptr) return;
  Metrics metrics;
  space->Evaluate(e->schedule.decisions, &metrics);
  e->analytic_seconds = metrics.seconds;
  const std::vector<std::string> names = FeatureNames(target);
  for (int i = 0; i < kNumFeatures; ++i) {
    const int decision = i - kDecisionFeaturesAt;
    if (names[i].empty() || decision >= space->size()) continue;
    e->features.emplace_back(decision < 0 ? names[i] : absl::StrCat(kDecision, space->hole_name(decision)),
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
absl::StatusOr<std::vector<Explanation::Share>> SharesOf(const std::string& path, const TuningRecord& record) {
  ASSIGN_OR_RETURN(const auto file, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> links, file->NetworkTasks());
  std::vector<Explanation::Share> shares;
  for (const NetworkTask& link : links) {
    if (link.workload_key != record.workload_key) continue;
    RecordFilter filter;
    filter.target = record.target;
    filter.device_model = record.device_model;
    filter.network = link.network;
    ASSIGN_OR_RETURN(const std::vector<TuningRecord> best, file->TopK(filter, 1));
    ASSIGN_OR_RETURN(const auto counts, CountsOf(*file, link.network));
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
  const DeviceFacts facts = ResolveFacts(target);
  e.computation = e.dag.ToString();
  for (const Step& step : e.schedule.steps) absl::StrAppend(&e.steps, ToString(step), "\n");
  ExplainNumbers(target, facts, &e);
  e.problem = std::string(ExplainProgram(target, facts, &e).message());
  return e;
}

Json MeasuredJson(const TuningRecord& record) {
  if (const Timing* timing = record.timing()) {
    Json samples = Json::array();
    for (double sample : timing->samples) samples.push_back(sample * 1e6);
    return {{"median_us", MedianSeconds(*timing) * 1e6},
            {"samples_us", samples},
            {"number", timing->number},
            {"raced_out", timing->raced_out}};
  }
  const MeasureError& error = *record.error();
  return {{"error", ErrorKindName(error.kind)}, {"stage", StageName(error.stage)}, {"text", error.text}};
}

void PrintJson(std::ostream& out, const Explanation& e) {
  Json decisions = Json::array(), features = Json::array();
  for (const auto& [name, value] : e.decisions) decisions.push_back({{"name", name}, {"value", value}});
  for (const auto& [name, value] : e.features) features.push_back({{"name", name}, {"value", value}});
  Json json = {{"id", e.record.id},
               {"workload", e.record.workload_key},
               {"task", e.record.task_name},
               {"target", e.record.target},
               {"device", e.record.device_model},
               {"trial", e.record.trial},
               {"view", e.schedule.view.ToString()},
               {"sketch", e.schedule.sketch},
               {"decisions", decisions},
               {"steps", e.steps},
               {"computation", e.computation},
               {"loops", e.loops},
               {"source", e.source},
               {"predicted_us", e.record.predicted ? Json(*e.record.predicted * 1e6) : Json(nullptr)},
               {"measured", MeasuredJson(e.record)},
               {"verification", VerifiedName(e.record.verified)}};
  if (e.analytic_seconds.has_value()) {
    json["analytic_us"] = *e.analytic_seconds * 1e6;
    json["features"] = features;
  }
  json["shares"] = Json::array();
  for (const Explanation::Share& one : e.shares)
    json["shares"].push_back({{"network", one.network}, {"count", one.count}, {"share", one.share}});
  if (!e.problem.empty()) json["problem"] = e.problem;
  out << json.dump(2) << "\n";
}

void PrintMeasured(std::ostream& out, const Explanation& e) {
  const TuningRecord& record = e.record;
  if (const Timing* timing = record.timing()) {
    const double median = MedianSeconds(*timing);
    out << "measured   median " << Duration(median) << " of " << Count(timing->samples.size(), "sample") << " of "
        << timing->number << (timing->number == 1 ? " launch" : " launches") << (timing->raced_out ? ", raced out" : "")
        << "\n"
        << "speed      " << Digits(e.dag.flops() / median / 1e9) << " GFLOP/s\n";
  } else {
    out << "failed     " << ErrorKindName(record.error()->kind) << " at stage " << StageName(record.error()->stage)
        << ": " << record.error()->text << "\n";
  }
  if (e.analytic_seconds.has_value()) out << "analytic   " << Duration(*e.analytic_seconds) << "\n";
  if (record.predicted.has_value()) {
    out << "predicted  " << Duration(*record.predicted) << " when it was chosen\n";
  }
  out << "verified   " << VerifiedName(record.verified) << (record.verify_text.empty() ? "" : ": " + record.verify_text)
      << "\n";
}

// What the number stands for: features of large quantities are logarithms, log2(1 + x).
void PrintFeature(std::ostream& out, absl::string_view name, double value) {
  const bool is_log = absl::ConsumeSuffix(&name, kLog);
  out << absl::StrFormat("  %-34s %.4g\n", name, is_log ? std::exp2(value) - 1 : value);
}

// Those of the whole program first, then of its slowest kernel and of the second one, if there is one. Decisions are
// left out: they were printed before.
void PrintFeatures(std::ostream& out, const Explanation& e) {
  out << "\nfeatures (those that are not 0)\n";
  for (const std::string& of : {std::string("all: "), std::string("slowest: "), std::string("second: ")})
    for (const auto& [name, value] : e.features)
      if (value != 0 && absl::StartsWith(name, of)) PrintFeature(out, name, value);
}

void PrintText(std::ostream& out, const Explanation& e) {
  const TuningRecord& record = e.record;
  out << "record     " << record.id << ", trial " << record.trial << " of " << record.task_name << "\n"
      << "workload   " << record.workload_key << "\n"
      << "target     " << record.target << " on " << record.device_model << "\n"
      << "sketch     " << e.schedule.sketch << " over the view " << e.schedule.view.ToString() << "\n";
  for (const Explanation::Share& one : e.shares)
    out << "share      "
        << absl::StrFormat("%.1f%% of %s, which has the task %g times\n", 100 * one.share, one.network, one.count);
  PrintMeasured(out, e);
  if (!e.decisions.empty()) {
    out << "\ndecisions\n";
    for (const auto& [name, value] : e.decisions) out << "  " << name << " = " << value << "\n";
  }
  out << "\ncomputation\n" << e.computation << "\nsteps\n" << e.steps;
  if (!e.features.empty()) PrintFeatures(out, e);
  if (!e.problem.empty()) out << "\nThe schedule makes no program here: " << e.problem << "\n";
  if (!e.loops.empty()) out << "\nloops\n" << e.loops;
  if (!e.source.empty()) out << "\nsource\n" << e.source;
}

absl::Status RunExplain(const ExplainFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const auto history, History::Open(flags.history, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(TuningRecord record, history->Get(flags.record));
  ASSIGN_OR_RETURN(Explanation explanation, Explain(std::move(record)));
  ASSIGN_OR_RETURN(explanation.shares, SharesOf(flags.history, explanation.record));
  flags.json ? PrintJson(session.out, explanation) : PrintText(session.out, explanation);
  return absl::OkStatus();
}

}  // namespace

void AddExplain(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("explain", "Show a record's schedule as loops and source, with its numbers");
  auto flags = std::make_shared<ExplainFlags>();
  command->add_option("--history", flags->history, "History with the record")->required()->type_name("FILE");
  AddWhole(command, "--record", &flags->record, 1, std::numeric_limits<int64_t>::max(),
           "Its id, as `diapason query` shows it")
      ->required();
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunExplain(*flags, session); }; });
}

}  // namespace diapason
