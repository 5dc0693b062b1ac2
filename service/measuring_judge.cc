#include "service/measuring_judge.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/build/network_plan.h"
#include "compiler/schedule/step.h"
#include "diapason/v1/measure.pb.h"
#include "scheduler/space.h"
#include "service/contenders.h"
#include "service/tune_spec.h"

namespace diapason {
namespace {

// Behind all that a tuner numbers, which counts from 1. Judges of several networks may share a client, to which an id
// must be new.
constexpr int64_t kFirstId = int64_t{1} << 48, kIdsOfAJudge = int64_t{1} << 24;
int64_t FirstIdOfAJudge() {
  static std::atomic<int64_t> judges{0};
  return kFirstId + kIdsOfAJudge * judges++;
}
constexpr double kJudgeLook = 0.5;  // seconds between looks at *stop
// Big networks on slow processors: the reference alone takes a minute or more.
constexpr double kRunTimeout = 60, kVerifyTimeout = 540;

NetworkJudge::Verdict Faulty(const std::string& text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {false, false, kInfinity, kInfinity, text};
}

absl::StatusOr<NetworkJudge::Verdict> VerdictOf(const MeasurementResult& result) {
  const MeasureError* error = std::get_if<MeasureError>(&result.outcome);
  if (error != nullptr && !SpeaksOfCandidate(result.outcome))
    return absl::UnavailableError(absl::StrCat("the workers could not check the network: ", error->text));
  if (result.check.has_value())
    return NetworkJudge::Verdict{
        result.check->ok,         true, result.check->max_abs_error, result.check->max_rel_error, result.check->text,
        result.check->run_seconds};
  if (error != nullptr) return Faulty(absl::StrCat(ErrorKindName(error->kind), ": ", error->text));
  return absl::UnavailableError("a worker ran the network and compared nothing; update the workers");
}

Measurement VerificationOf(const TuningRecord& record) {
  Measurement measurement;
  measurement.workload = std::make_shared<const std::string>(record.workload);
  measurement.schedule = record.schedule;
  return measurement;
}

// Verifies the records that contend with those of the network, the first of each task before the second ones. What is
// wrong is marked; what could not be asked in time stays as it is.
absl::Status VerifyContenders(const Assembly& assembly, History& history, MeasuringJudge& judge, double seconds) {
  std::vector<std::vector<TuningRecord>> contenders;  // by task
  for (const std::optional<TuningRecord>& best : assembly.records) {
    if (!best.has_value()) continue;
    ASSIGN_OR_RETURN(std::vector<TuningRecord> fast,
                     FastRecords(history, best->workload_key, best->device_model, best->target));
    contenders.push_back(ContendersOf(*best, std::move(fast)));
  }
  std::vector<const TuningRecord*> records;
  for (size_t place = 0; place < kContenders; ++place)
    for (const std::vector<TuningRecord>& of_task : contenders)
      if (place < of_task.size() && of_task[place].verified == Verified::kUnknown) records.push_back(&of_task[place]);
  if (records.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto verdicts, judge.VerifyAll(records, seconds));
  for (size_t i = 0; i < verdicts.size(); ++i)
    if (verdicts[i].has_value())
      RETURN_IF_ERROR(
          history.SetVerified(records[i]->id, verdicts[i]->ok, verdicts[i]->max_abs_error, verdicts[i]->text));
  return absl::OkStatus();
}

}  // namespace

MeasuringJudge::MeasuringJudge(const Network& network, const ResolvedTarget& target, MeasureClient& client,
                               MeasuringJudgeOptions options)
    : network_(network), target_(target), client_(client), options_(std::move(options)), next_id_(FirstIdOfAJudge()) {}

MeasuringJudge::~MeasuringJudge() = default;

absl::Status MeasuringJudge::Use(const Assembly& assembly) {
  assembly_ = &assembly;
  check_ = std::make_unique<v1::NetworkCheck>();
  PlanNetwork(network_, assembly.partition, *check_->mutable_plan());
  check_->set_seed(options_.seed);
  return absl::OkStatus();
}

absl::StatusOr<const std::string*> MeasuringJudge::DefaultScheduleOf(const Task& task) {
  std::string& bytes = default_schedules_[task.workload_key];
  if (bytes.empty()) {
    ASSIGN_OR_RETURN(const Schedule schedule, DefaultSchedule(task.dag, target_.target, target_.facts));
    bytes = SerializeSchedule(schedule);
  }
  return &bytes;
}

absl::StatusOr<NetworkJudge::Verdict> MeasuringJudge::Judge(const std::vector<bool>& in_place) {
  v1::NetworkCheck check = *check_;
  for (const PlacedTask& placed : assembly_->partition.programs) {
    const std::optional<TuningRecord>& record = assembly_->records[placed.task];
    if (in_place[placed.task] && record.has_value()) {
      check.add_schedules(record->schedule);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string* schedule, DefaultScheduleOf(assembly_->partition.tasks[placed.task]));
    check.add_schedules(*schedule);
  }
  Measurement measurement;
  measurement.network = std::make_shared<const std::string>(check.SerializeAsString());
  ASSIGN_OR_RETURN(const Verdict verdict, Ask(measurement));
  if (verdict.ok || verdict.compared) return verdict;
  // Wrong numbers are evidence at once; what ended a process may have come from outside.
  return Ask(measurement);
}

absl::StatusOr<NetworkJudge::Verdict> MeasuringJudge::Verify(const TuningRecord& record) {
  return Ask(VerificationOf(record));
}

absl::StatusOr<std::vector<std::optional<NetworkJudge::Verdict>>> MeasuringJudge::VerifyAll(
    const std::vector<const TuningRecord*>& records, double seconds) {
  std::vector<Measurement> measurements;
  for (const TuningRecord* record : records) measurements.push_back(VerificationOf(*record));
  return AskAll(std::move(measurements), seconds);
}

absl::StatusOr<NetworkJudge::Verdict> MeasuringJudge::Ask(Measurement measurement) {
  std::vector<Measurement> one;
  one.push_back(std::move(measurement));
  ASSIGN_OR_RETURN(const auto verdicts, AskAll(std::move(one), 0));
  return *verdicts.front();
}

absl::StatusOr<std::vector<std::optional<NetworkJudge::Verdict>>> MeasuringJudge::AskAll(
    std::vector<Measurement> measurements, double seconds) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::optional<Verdict>> verdicts(measurements.size());
  size_t left = measurements.size();
  const int64_t first_id = next_id_;
  for (Measurement& measurement : measurements) {
    measurement.id = next_id_++;
    measurement.mode = MeasurementMode::kVerify;
    measurement.target = target_.target.ToString();
    measurement.device_model = options_.device_model;
    measurement.build_timeout_s = options_.build_timeout_seconds;
    measurement.run_timeout_s = kRunTimeout;
    measurement.verify_timeout_s = kVerifyTimeout;
  }
  RETURN_IF_ERROR(client_.Submit(std::move(measurements)));
  while (left > 0) {
    if (options_.stop != nullptr && *options_.stop) {
      client_.Cancel();
      return absl::CancelledError("stopped while the network was checked");
    }
    if (seconds > 0 && std::chrono::steady_clock::now() - began > std::chrono::duration<double>(seconds)) {
      client_.Cancel();
      break;
    }
    ASSIGN_OR_RETURN(const std::vector<MeasurementResult> results, client_.Next(kJudgeLook));
    for (const MeasurementResult& result : results) {
      const int64_t index = result.id - first_id;
      if (index < 0 || index >= static_cast<int64_t>(verdicts.size())) continue;  // of the tuner, given up
      if (!verdicts[index].has_value()) --left;
      ASSIGN_OR_RETURN(verdicts[index], VerdictOf(result));
    }
  }
  return verdicts;
}

absl::StatusOr<NetworkCheckReport> CheckTuned(const ImportedModel& model, const ResolvedTarget& target,
                                              History& history, MeasureClient& client,
                                              const MeasuringJudgeOptions& options) {
  HistoryShelf shelf(&history, target.facts.model, target.target.ToString());
  MeasuringJudge judge(model.network, target, client, options);
  ASSIGN_OR_RETURN(NetworkCheckReport report, CheckNetwork(model.network, model.fusion, shelf, judge));
  const double tasks = SecondsOfTasks(report.assembly);
  if (!options.latency_network.empty() && report.run_seconds > 0 && tasks > 0) {
    RETURN_IF_ERROR(history.SetLatency(
        {options.latency_network, target.target.ToString(), target.facts.model, report.run_seconds, tasks}));
  }
  if (report.right && options.contender_seconds > 0) {
    // The network is right whether or not there is a choice.
    const absl::Status verified = VerifyContenders(report.assembly, history, judge, options.contender_seconds);
    if (absl::IsCancelled(verified)) return verified;
  }
  return report;
}

absl::StatusOr<std::vector<PlanCheck>> CheckTunedPlans(const std::vector<ImportedPlan>& plans,
                                                       const ResolvedTarget& target, History& history,
                                                       MeasureClient& client, const MeasuringJudgeOptions& options) {
  std::vector<PlanCheck> checks;
  for (const ImportedPlan& plan : plans) {
    MeasuringJudgeOptions of_plan = options;
    of_plan.latency_network = LatencyKey(options.latency_network, plan.model.fusion.partition);
    ASSIGN_OR_RETURN(NetworkCheckReport report, CheckTuned(plan.model, target, history, client, of_plan));
    checks.push_back({plan.combination.sizes, std::move(report)});
  }
  return checks;
}

bool AllRight(const std::vector<PlanCheck>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const PlanCheck& check) { return check.report.right; });
}

std::string Summary(const std::vector<PlanCheck>& checks) {
  return absl::StrJoin(checks, "\n", [](std::string* out, const PlanCheck& check) {
    absl::StrAppend(out, check.sizes.empty() ? std::string() : absl::StrCat(SizesText(check.sizes), ": "),
                    Summary(check.report));
  });
}

std::string WhyWrong(const std::vector<PlanCheck>& checks) {
  std::vector<std::string> wrong;
  for (const PlanCheck& check : checks)
    if (!check.report.right)
      wrong.push_back(check.sizes.empty() ? check.report.text
                                          : absl::StrCat("with ", SizesText(check.sizes), ", ", check.report.text));
  return absl::StrJoin(wrong, "; ");
}

}  // namespace diapason
