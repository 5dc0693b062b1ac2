// diapason explain: a record of a history, or a candidate of a task, in readable form.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/explain_task.h"
#include "cli/explanation.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "db/history.h"

namespace diapason {
namespace {

constexpr char kLog[] = " log2";  // ends names of features that are logarithms

// The parts that are shown, in this order.
constexpr const char* kParts[] = {"computation", "rewrite",  "sketches", "configuration",
                                  "steps",       "features", "loops",    "source"};

struct ExplainFlags {
  ModelFlags model;
  ImportFlags import;
  CandidateChoice choice;
  std::string history;
  int64_t record = 0;
  std::vector<std::string> show;  // empty: all
  bool json = false;
};

void PrintMeasured(std::ostream& out, const Explanation& e) {
  const TuningRecord& record = e.record;
  if (const Timing* timing = record.timing()) {
    const double median = MedianSeconds(*timing);
    out << "measured   median " << Duration(median) << " of " << Count(timing->samples.size(), "sample") << " of "
        << timing->number << (timing->number == 1 ? " launch" : " launches")
        << (timing->stopped_early ? ", stopped early" : "") << "\n"
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

// Those of the whole program first, then of its slowest kernel and of the second one, if there is one. Parameters are
// left out: they were printed before.
void PrintFeatures(std::ostream& out, const Explanation& e) {
  out << "features (those that are not 0)\n";
  for (const std::string& of : {std::string("all: "), std::string("slowest: "), std::string("second: ")})
    for (const auto& [name, value] : e.features)
      if (value != 0 && absl::StartsWith(name, of)) PrintFeature(out, name, value);
}

void PrintHead(std::ostream& out, const Explanation& e) {
  const TuningRecord& record = e.record;
  if (record.id > 0)
    out << "record     " << record.id << ", trial " << record.trial << " of " << record.task_name << "\n";
  if (record.id == 0) out << "task       " << record.task_name << "\n";
  out << "workload   " << record.workload_key << "\n"
      << "target     " << record.target << (record.device_model.empty() ? "" : " on " + record.device_model) << "\n"
      << "sketch     " << e.schedule.sketch << ", algorithm " << e.schedule.rewrite.ToString() << "\n";
  for (const Explanation::Share& one : e.shares)
    out << "share      "
        << absl::StrFormat("%.1f%% of %s, which has the task %g times\n", 100 * one.share, one.network, one.count);
  if (record.id > 0) {
    PrintMeasured(out, e);
  } else if (e.analytic_seconds.has_value()) {
    out << "analytic   " << Duration(*e.analytic_seconds) << "\n";
  }
}

void PrintText(std::ostream& out, const Explanation& e, const std::vector<std::string>& show) {
  const auto shown = [&](const char* part) {
    return show.empty() || std::find(show.begin(), show.end(), part) != show.end();
  };
  const char* gap = "";  // an empty line between parts
  if (show.empty()) {
    PrintHead(out, e);
    gap = "\n";
  }
  if (!e.problem.empty()) {
    out << gap << "The schedule makes no program here: " << e.problem << "\n";
    gap = "\n";
  }
  const auto part = [&](const char* name, const std::string& text) {
    if (!shown(name) || text.empty()) return;
    out << gap << name << "\n" << text;
    gap = "\n";
  };
  std::string sketches, configuration;
  for (const auto& [name, seconds] : e.sketches)
    absl::StrAppendFormat(&sketches, "  %-40s %s\n", name, Duration(seconds));
  for (const auto& [name, value] : e.configuration) absl::StrAppend(&configuration, "  ", name, " = ", value, "\n");
  part("computation", e.computation);
  part("rewrite", e.rewrite);
  part("sketches", sketches);
  part("configuration", configuration);
  part("steps", e.steps);
  if (!e.features.empty() && shown("features")) {
    out << gap;
    PrintFeatures(out, e);
    gap = "\n";
  }
  part("loops", e.loops);
  part("source", e.source);
}

absl::StatusOr<Explanation> ExplanationOf(const ExplainFlags& flags, Session& session) {
  if (!flags.model.model.empty()) {
    if (flags.record > 0) return absl::InvalidArgumentError("give either MODEL or --record, not both");
    if (flags.choice.target.empty() || flags.choice.task.empty())
      return absl::InvalidArgumentError(
          "a candidate of MODEL needs --target and --task; `diapason tasks` lists the tasks");
    ASSIGN_OR_RETURN(const api::Model model, ModelOf(flags.model, flags.import, ""));
    return ExplainTask(model, flags.choice, HooksOf(session));
  }
  if (flags.history.empty() || flags.record == 0)
    return absl::InvalidArgumentError(
        "give --history and --record, as `diapason query` shows it, or MODEL with --target and --task");
  ASSIGN_OR_RETURN(const auto history, History::Open(flags.history, HistoryMode::kReadOnly));
  return ExplainRecord(*history, flags.record);
}

absl::Status RunExplain(const ExplainFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const Explanation explanation, ExplanationOf(flags, session));
  if (flags.json) {
    WriteDocument(session.out, {"explanation", 2}, ExplanationJson(explanation));
  } else {
    PrintText(session.out, explanation, flags.show);
  }
  return absl::OkStatus();
}

}  // namespace

void AddExplain(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("explain", "Show a candidate: schedule, loops, source, features and times");
  command->footer(
      "Explains a record of a history (--history, --record), or a candidate of a network's task (MODEL, --target, "
      "--task): the fallback schedule, or the schedule of --sketch with the values of --parameter. The latter needs "
      "neither a history nor the device.");
  auto flags = std::make_shared<ExplainFlags>();
  command->add_option("--history", flags->history, "History with the record")->type_name("FILE");
  AddWhole(command, "--record", &flags->record, {1, std::numeric_limits<int64_t>::max()},
           "Id of the record, as `diapason query` shows it");
  AddModelFlags(command, &flags->model);
  command->get_option("MODEL")->required(false);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->choice.target, &flags->model);
  command->get_option("--target")->required(false);
  command->add_option("--task", flags->choice.task, "Task of MODEL: its number or name, as `diapason tasks` shows them")
      ->type_name("TASK");
  command->add_option("--sketch", flags->choice.sketch, "Sketch of the task (default: that of the fallback schedule)")
      ->type_name("NAME");
  command
      ->add_option("--parameter", flags->choice.parameters,
                   "Value of a tunable parameter of the sketch (default: the sketch's own); may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME=VALUE");
  command
      ->add_option("--show", flags->show,
                   absl::StrCat("Show only these parts, separated by commas: ", absl::StrJoin(kParts, ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kParts), std::end(kParts))))
      ->type_name("PARTS");
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunExplain(*flags, session); }; });
}

}  // namespace diapason
