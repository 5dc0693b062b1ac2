#include "api/tune_job.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/version.h"
#include "base/check.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "db/history.h"
#include "db/history_name.h"
#include "db/rounds.h"
#include "scheduler/space.h"
#include "scheduler/tuner.h"
#include "service/target.h"

namespace diapason::api {
namespace {

// What this host has says nothing of a fleet's workers: there, calls of a missing library fail as candidates do.
Target WithoutMissing(const Target& target, const TuneJob& job) {
  std::vector<std::string> missing;
  Target here = WithoutMissingLibraries(target, CheckLibrary, &missing);
  for (const std::string& warning : missing) job.warn(warning);
  return here;
}

// The assembled network, by those who measured.
absl::StatusOr<std::vector<PlanCheck>> CheckNetworkOf(const TuneJob& job, const Fleet& fleet,
                                                      ::diapason::History& history, double tuned_seconds) {
  ImportRequest request{job.spec.model, job.spec.options, job.import, /*with_network=*/true, job.stop};
  request.fusion = PreferredFusion(fleet.target);
  ASSIGN_OR_RETURN(const std::vector<ImportedPlan> plans, ImportPlans(std::move(request), job.spec.dims));
  MeasuringJudgeOptions options{fleet.target.facts.model, job.spec.measure.build_timeout_s, 1, job.stop};
  options.latency_network = NetworkName(job.spec.model);
  options.contender_seconds = ContenderSeconds(tuned_seconds);
  return CheckTunedPlans(plans, fleet.target, history, fleet.measurer->client(), options);
}

absl::StatusOr<TunerOptions> OptionsOf(const TuneJob& job, const TuneWork& work, const Fleet& fleet,
                                       ::diapason::History& history) {
  TunerOptions options = TunerOptionsFor(job.spec, work, fleet.target);
  // Only the spaces are without what is missing or left out: records keep the target as it was given.
  const Target searched = job.here ? WithoutMissing(options.target, job) : options.target;
  options.make_space = [searched, without = job.without](const ComputeDag& dag, const Target&,
                                                         const DeviceFacts& facts) {
    return TaskSpace::CreateWithout(dag, searched, facts, without);
  };
  options.command_line = job.name;
  options.version = kVersion;
  ASSIGN_OR_RETURN(options.tuned_elsewhere, ShippedForSearch(job.spec, fleet.target, job.import.program));
  if (!job.spec.deterministic) options.model_path = StatePath(job.history, ".model");
  ASSIGN_OR_RETURN(options.continued_runs, ContinuedRuns(job.spec, history, job.name));
  return options;
}

}  // namespace

absl::Status CheckWithout(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::find(std::begin(kAlgorithms), std::end(kAlgorithms), name) == std::end(kAlgorithms))
      return absl::InvalidArgumentError(
          absl::StrCat("--without has '", name, "', which is no algorithm that can be left out; name one or more of ",
                       absl::StrJoin(kAlgorithms, ",")));
  return absl::OkStatus();
}

absl::StatusOr<Tuned> RunTuneJob(const TuneJob& job) {
  RETURN_IF_ERROR(CheckWithout(job.without));
  Tuned tuned;
  ASSIGN_OR_RETURN(tuned.work, PrepareWork(job.spec, job.spec.model, {job.import, job.stop}));
  for (const std::string& warning : tuned.work.warnings) job.warn(warning);
  ASSIGN_OR_RETURN(const std::unique_ptr<::diapason::History> history,
                   ::diapason::History::Open(job.history, HistoryMode::kCreate));
  ASSIGN_OR_RETURN(tuned.fleet, job.measure(tuned.work));
  // The devices may prefer other tasks than the target as it was given.
  if (const FusionPreferences fusion = PreferredFusion(tuned.fleet.target); fusion != tuned.work.fusion) {
    ASSIGN_OR_RETURN(tuned.work, PrepareWork(job.spec, job.spec.model, {job.import, job.stop, fusion}));
  }
  RETURN_IF_ERROR(history->LinkNetwork(tuned.work.links));
  ASSIGN_OR_RETURN(TunerOptions options, OptionsOf(job, tuned.work, tuned.fleet, *history));
  ASSIGN_OR_RETURN(const std::unique_ptr<RoundStore> rounds, RoundStore::Open(StatePath(job.history, ".rounds")));
  options.rounds = rounds.get();
  options.rounds_run = job.name;
  const std::unique_ptr<ProgressListener> listener = job.listen(tuned.work);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tuner> tuner,
                   Tuner::Create(std::move(tuned.work.tasks), std::move(options), tuned.fleet.measurer.get(),
                                 history.get(), listener.get()));
  ASSIGN_OR_RETURN(tuned.report, tuner->Run(job.stop));
  if (job.spec.no_check || (job.stop != nullptr && *job.stop)) return tuned;
  absl::StatusOr<std::vector<PlanCheck>> checks = CheckNetworkOf(job, tuned.fleet, *history, tuned.report.seconds);
  tuned.checked = checks.status();
  if (checks.ok()) tuned.checks = *std::move(checks);
  for (const PlanCheck& check : tuned.checks)
    for (const auto& wrong : check.report.wrong) job.warn(wrong.Sentence());
  return tuned;
}

absl::Status Verdict(const Tuned& tuned) {
  if (!tuned.checked.ok()) {
    return absl::Status(tuned.checked.code(),
                        absl::StrCat("the network was tuned, but could not be checked: ", tuned.checked.message(),
                                     "; the same command checks it again, --no-check does without"));
  }
  if (!AllRight(tuned.checks)) return absl::DataLossError(WhyWrong(tuned.checks));
  return absl::OkStatus();
}

}  // namespace diapason::api
