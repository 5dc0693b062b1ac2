#include "service/job_runner.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "db/history.h"
#include "db/rounds.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_progress.h"
#include "service/measurer.h"
#include "service/measuring_judge.h"
#include "service/target.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

// Of the job, whatever its options. Ids begin anew with another list of jobs, keys do not.
std::string RunName(const v1::Job& job) { return absl::StrCat("diapason serve: job ", job.id(), " (", job.key(), ")"); }

// What the history's runs of the job, since it has these options, are known by.
std::string SeriesName(const v1::Job& job) {
  return absl::StrCat("diapason serve: job ", job.id(), " (", job.key(), ".", job.series(), ")");
}

v1::NetworkCheckOutcome OutcomeOfChecks(const std::vector<PlanCheck>& checks, int64_t job) {
  v1::NetworkCheckOutcome outcome;
  outcome.set_right(AllRight(checks));
  outcome.set_text(Summary(checks));
  if (checks.size() == 1) outcome.set_latency_us(checks.front().report.run_seconds * 1e6);
  for (const PlanCheck& check : checks) {
    outcome.set_seconds(outcome.seconds() + check.report.seconds);
    for (const NetworkCheckReport::Wrong& wrong : check.report.wrong) {
      outcome.add_wrong_records(wrong.Sentence());
      LogEvent(LogLevel::kWarning, "record_wrong_in_network",
               {{"job", absl::StrCat(job)}, {"record", absl::StrCat(wrong.record.id)}, {"why", wrong.evidence}});
    }
  }
  return outcome;
}

}  // namespace

absl::Status JobRunner::Check(const TuneSpec& spec, const v1::TuneSpec& message) const {
  ASSIGN_OR_RETURN(const PreparationTurns::Turn turn, turns_.BeginSubmission());
  return Read(spec, message, {options_.import}).status();
}

void JobRunner::Run(JobTable::Entry& entry, const v1::Job& job, const std::string& tracker) const {
  LogEvent(LogLevel::kInfo, "job_begins", {{"job", absl::StrCat(job.id())}, {"model", job.spec().model()}});
  jobs_.End(entry, Tune(entry, job, tracker));
}

absl::Status JobRunner::InTurn(JobTable::Entry& entry, const std::function<absl::Status()>& prepare) const {
  ASSIGN_OR_RETURN(const PreparationTurns::Turn turn, turns_.BeginJob(entry.stop));
  RETURN_IF_ERROR(jobs_.BeginPreparation(entry));
  absl::Status prepared = prepare();
  jobs_.EndPreparation(entry);
  return prepared;
}

absl::StatusOr<TuneWork> JobRunner::Read(TuneSpec spec, const v1::TuneSpec& message,
                                         const PrepareOptions& options) const {
  ASSIGN_OR_RETURN(const std::string path, files_.BringModel(message));
  spec.options.external_data = false;
  absl::StatusOr<TuneWork> work = PrepareWork(spec, path, options);
  if (work.ok() || message.model_hash().empty()) return work;
  return absl::Status(work.status().code(), absl::StrReplaceAll(work.status().message(), {{path, message.model()}}));
}

absl::StatusOr<Fleet> JobRunner::Connect(JobTable::Entry& entry, const TuneSpec& spec, const std::string& tracker,
                                         const std::string& name, const std::string& job) const {
  FleetOptions options;
  options.tracker = tracker;
  ASSIGN_OR_RETURN(options.target, Target::Parse(spec.target));
  options.device_model = spec.device_model;
  options.client.name = name;
  options.client.job = job;
  options.client.priority = spec.priority;
  options.client.weight = spec.weight;
  options.client.labels = {spec.labels.begin(), spec.labels.end()};
  options.client.give_up_seconds = options_.give_up_seconds;
  options.client.credentials = options_.credentials;
  options.stop = &entry.stop;
  return ConnectFleet(options);
}

absl::StatusOr<TunerOptions> JobRunner::OptionsFor(const TuneSpec& spec, const TuneWork& work, const Fleet& fleet,
                                                   const v1::Job& job) const {
  TunerOptions options = TunerOptionsFor(spec, work, fleet.target);
  ASSIGN_OR_RETURN(options.tuned_elsewhere, ShippedForSearch(spec, fleet.target, options_.import.program));
  options.command_line = SeriesName(job);
  if (!spec.deterministic) {
    options.model_path = files_.CostModelPath(job.id());
    RETURN_IF_ERROR(files_.BringCostModel(job.id()));
  }
  ASSIGN_OR_RETURN(options.continued_runs, ContinuedRuns(spec, files_.history(), options.command_line));
  options.rounds = &files_.rounds();
  options.rounds_run = RunName(job);
  return options;
}

absl::StatusOr<std::string> JobRunner::Tune(JobTable::Entry& entry, const v1::Job& job,
                                            const std::string& tracker) const {
  ASSIGN_OR_RETURN(const TuneSpec spec, FromProto(job.spec()));
  TuneWork work;
  PrepareOptions how{options_.import, &entry.stop};
  const auto read = [&] {
    return InTurn(entry, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(work, Read(spec, job.spec(), how));
      return absl::OkStatus();
    });
  };
  RETURN_IF_ERROR(read());
  const std::string id = absl::StrCat(job.id());
  ASSIGN_OR_RETURN(const Fleet fleet, Connect(entry, spec, tracker, absl::StrCat("job ", id, " ", work.network), id));
  // The devices may prefer other tasks than the target as it was given.
  how.fusion = PreferredFusion(fleet.target);
  if (how.fusion != work.fusion) RETURN_IF_ERROR(read());
  RETURN_IF_ERROR(files_.history().LinkNetwork(work.links));
  ASSIGN_OR_RETURN(TunerOptions options, OptionsFor(spec, work, fleet, job));
  JobListener listener(work.partition, [&](const v1::JobProgress& progress) { jobs_.SetProgress(entry, progress); });
  for (const std::string& warning : work.warnings) listener.OnWarning(warning);
  std::unique_ptr<Tuner> tuner;
  RETURN_IF_ERROR(InTurn(entry, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(tuner, Tuner::Create(std::move(work.tasks), std::move(options), fleet.measurer.get(),
                                          &files_.history(), &listener));
    return absl::OkStatus();
  }));
  const absl::StatusOr<TuneReport> report = tuner->Run(&entry.stop);
  if (!spec.deterministic) files_.KeepCostModel(job.id());
  RETURN_IF_ERROR(report.status());
  if (entry.stop) return absl::CancelledError("stopped");
  if (!spec.no_check) RETURN_IF_ERROR(CheckNetworkOf(entry, spec, job, fleet, report->seconds));
  return report->stopped;
}

absl::StatusOr<std::vector<ImportedPlan>> JobRunner::ReadNetworks(JobTable::Entry& entry, const TuneSpec& spec,
                                                                  const v1::TuneSpec& message,
                                                                  const FusionPreferences& fusion) const {
  std::vector<ImportedPlan> plans;
  RETURN_IF_ERROR(InTurn(entry, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string path, files_.BringModel(message));
    ModelOptions options = spec.options;
    options.external_data = false;
    ImportRequest request{path, options, options_.import, /*with_network=*/true, &entry.stop};
    request.fusion = fusion;
    ASSIGN_OR_RETURN(plans, ImportPlans(std::move(request), spec.dims));
    return absl::OkStatus();
  }));
  return plans;
}

absl::Status JobRunner::CheckNetworkOf(JobTable::Entry& entry, const TuneSpec& spec, const v1::Job& job,
                                       const Fleet& fleet, double tuned_seconds) const {
  ASSIGN_OR_RETURN(const std::vector<ImportedPlan> plans,
                   ReadNetworks(entry, spec, job.spec(), PreferredFusion(fleet.target)));
  MeasuringJudgeOptions options{fleet.target.facts.model, spec.measure.build_timeout_s, 1, &entry.stop};
  options.latency_network = NetworkName(spec.model);
  options.contender_seconds = ContenderSeconds(tuned_seconds);
  ASSIGN_OR_RETURN(const std::vector<PlanCheck> checks,
                   CheckTunedPlans(plans, fleet.target, files_.history(), fleet.measurer->client(), options));
  jobs_.SetNetworkCheck(entry, OutcomeOfChecks(checks, job.id()));
  return AllRight(checks) ? absl::OkStatus() : absl::DataLossError(WhyWrong(checks));
}

}  // namespace diapason
