// diapason explain: a record of a history, or a candidate of a task, in readable form.
#include "diapason/explain.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

constexpr char kLog[] = " log2";  // ends names of features that are logarithms

// The parts that are shown, in this order.
constexpr const char* kParts[] = {"computation", "rewrite",  "sketches", "configuration",
                                  "steps",       "features", "loops",    "source"};

struct ExplainFlags {
  ModelFlags model;
  ImportFlags import;
  api::CandidateChoice choice;
  std::vector<std::string> parameters;  // NAME=VALUE
  std::string history;
  int64_t record = 0;
  std::vector<std::string> show;  // empty: all
  bool json = false;
};

void PrintMeasured(std::ostream& out, const api::Explanation& e) {
  if (e.measured.has_value()) {
    const int64_t runs = e.measured->runs_per_sample;
    out << "measured   median " << Duration(e.measured->median_us * 1e-6) << " of "
        << Count(e.measured->samples_us.size(), "sample") << " of " << runs << (runs == 1 ? " launch" : " launches")
        << (e.measured->stopped_early ? ", stopped early" : "") << "\n"
        << "speed      " << Digits(e.measured->gflops_per_s) << " GFLOP/s\n";
  } else if (e.failed.has_value()) {
    out << "failed     " << e.failed->kind << " at stage " << e.failed->stage << ": " << e.failed->text << "\n";
  }
  if (e.analytic_us.has_value()) out << "analytic   " << Duration(*e.analytic_us * 1e-6) << "\n";
  if (e.predicted_us.has_value()) out << "predicted  " << Duration(*e.predicted_us * 1e-6) << " when it was chosen\n";
  out << "verified   " << e.verification << (e.verification_text.empty() ? "" : ": " + e.verification_text) << "\n";
}

// What the number stands for: features of large quantities are logarithms, log2(1 + x).
void PrintFeature(std::ostream& out, absl::string_view name, double value) {
  const bool is_log = absl::ConsumeSuffix(&name, kLog);
  out << absl::StrFormat("  %-34s %.4g\n", name, is_log ? std::exp2(value) - 1 : value);
}

// Those of the whole program first, then of its slowest kernel and of the second one, if there is one. Parameters are
// left out: they were printed before.
void PrintFeatures(std::ostream& out, const api::Explanation& e) {
  out << "features (those that are not 0)\n";
  for (const std::string& of : {std::string("all: "), std::string("slowest: "), std::string("second: ")})
    for (const auto& [name, value] : e.features)
      if (value != 0 && absl::StartsWith(name, of)) PrintFeature(out, name, value);
}

void PrintHead(std::ostream& out, const api::Explanation& e) {
  if (e.record > 0) out << "record     " << e.record << ", trial " << e.trial << " of " << e.task << "\n";
  if (e.record == 0) out << "task       " << e.task << "\n";
  out << "workload   " << e.workload << "\n"
      << "target     " << e.target << (e.device.empty() ? "" : " on " + e.device) << "\n"
      << "sketch     " << e.sketch << ", algorithm " << e.algorithm << "\n";
  for (const api::Explanation::Share& one : e.shares)
    out << "share      "
        << absl::StrFormat("%.1f%% of %s, which has the task %g times\n", 100 * one.share, one.network, one.count);
  if (e.record > 0) {
    PrintMeasured(out, e);
  } else if (e.analytic_us.has_value()) {
    out << "analytic   " << Duration(*e.analytic_us * 1e-6) << "\n";
  }
}

void PrintText(std::ostream& out, const api::Explanation& e, const std::vector<std::string>& show) {
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
  for (const auto& [name, time_us] : e.sketch_times)
    absl::StrAppendFormat(&sketches, "  %-40s %s\n", name, Duration(time_us * 1e-6));
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

absl::StatusOr<std::map<std::string, int32_t>> ParseParameters(const std::vector<std::string>& texts) {
  std::map<std::string, int32_t> values;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    int32_t value = 0;
    if (equals == std::string::npos || equals == 0 || !absl::SimpleAtoi(text.substr(equals + 1), &value))
      return absl::InvalidArgumentError(
          absl::StrCat("--parameter ", text, " is not understood; write NAME=VALUE with a whole number"));
    values[text.substr(0, equals)] = value;
  }
  return values;
}

absl::StatusOr<api::Explanation> ExplanationOf(const ExplainFlags& flags, Session& session) {
  if (!flags.model.model.empty()) {
    if (flags.record > 0) return absl::InvalidArgumentError("give either MODEL or --record, not both");
    if (flags.choice.target.empty() || flags.choice.task.empty())
      return absl::InvalidArgumentError(
          "a candidate of MODEL needs --target and --task; `diapason tasks` lists the tasks");
    ASSIGN_OR_RETURN(const api::Model model, ModelOf(flags.model, flags.import, ""));
    api::CandidateChoice choice = flags.choice;
    ASSIGN_OR_RETURN(choice.parameters, ParseParameters(flags.parameters));
    return api::ExplainCandidate(model, choice, HooksOf(session));
  }
  if (flags.history.empty() || flags.record == 0)
    return absl::InvalidArgumentError(
        "give --history and --record, as `diapason query` shows it, or MODEL with --target and --task");
  return api::ExplainRecord(flags.history, flags.record);
}

absl::Status RunExplain(const ExplainFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::Explanation explanation, ExplanationOf(flags, session));
  if (flags.json) {
    session.out << api::ExplanationJson(explanation);
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
      ->add_option("--parameter", flags->parameters,
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
