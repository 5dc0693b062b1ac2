// diapason explain: one record of a history in readable form.
#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/explanation.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "db/history.h"

namespace diapason {
namespace {

constexpr char kLog[] = " log2";  // ends names of features that are logarithms

struct ExplainFlags {
  std::string history;
  int64_t record = 0;
  bool json = false;
};

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
  ASSIGN_OR_RETURN(const Explanation explanation, ExplainRecord(*history, flags.record));
  if (flags.json) {
    session.out << ExplanationJson(explanation).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                << "\n";
  } else {
    PrintText(session.out, explanation);
  }
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
