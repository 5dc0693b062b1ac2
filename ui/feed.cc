#include "ui/feed.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rfc3339.h"
#include "db/history_name.h"
#include "db/trials.h"
#include "ui/task_facts.h"

namespace diapason {
namespace {

constexpr char kSnapshotSchema[] = "diapason.page.history/2";
constexpr char kChangeSchema[] = "diapason.page.change/2";
constexpr double kMicro = 1e6;

// With nine significant digits, which keeps the document small: shown are four.
Json Micros(const std::optional<double>& seconds) {
  if (!seconds.has_value() || !std::isfinite(*seconds)) return nullptr;
  const double us = *seconds * kMicro;
  if (us == 0) return 0;
  const double scale = std::pow(10, 8 - std::floor(std::log10(std::abs(us))));
  return std::isfinite(scale) && scale > 0 ? Json(std::round(us * scale) / scale) : Json(us);
}

Json VerifiedNames() {
  Json names = Json::array();
  for (Verified verified : {Verified::kUnknown, Verified::kOk, Verified::kFailed, Verified::kWrongInNetwork})
    names.push_back(VerifiedName(verified));
  return names;
}

Json PlaceJson(const std::string& target, const std::string& device) {
  Json place = {{"target", target}, {"device", device}, {"roofs", nullptr}};
  const std::optional<Roofs> roofs = RoofsOf(target, device);
  if (!roofs.has_value()) return place;
  Json compute = Json::array();
  for (const Roofs::Compute& one : roofs->compute)
    compute.push_back({{"name", one.name}, {"flops_per_s", one.flops_per_second}});
  place["roofs"] = {{"compute", compute}, {"bytes_per_s", roofs->bytes_per_second}};
  return place;
}

Json Rest(const Json& list, size_t from) {
  Json rest = Json::array();
  for (size_t i = from; i < list.size(); ++i) rest.push_back(list[i]);
  return rest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HistoryFeed>> HistoryFeed::Open(const std::string& path, FeedOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<History> history, History::Open(path, HistoryMode::kReadOnly));
  std::unique_ptr<HistoryFeed> feed(new HistoryFeed(std::move(history), options));
  ASSIGN_OR_RETURN(const int64_t counter, TrialLog(*feed->history_).ChangeCounter());
  RETURN_IF_ERROR(feed->Reload());
  feed->counter_ = counter;
  return feed;
}

absl::Status HistoryFeed::Reload() {
  workloads_ = places_ = sketches_ = errors_ = Names();
  rows_.clear();
  ASSIGN_OR_RETURN(total_, TrialLog(*history_).Count());
  RETURN_IF_ERROR(ReadNetworks());
  RETURN_IF_ERROR(ReadRuns());
  ASSIGN_OR_RETURN(const std::vector<TrialRow> trials, TrialLog(*history_).Trials(0, options_.most));
  origin_ = trials.empty() ? 0 : trials.front().created_at;
  for (const TrialRow& trial : trials) RETURN_IF_ERROR(AddRow(trial));
  return absl::OkStatus();
}

int HistoryFeed::AddWorkload(const std::string& key, const std::string& name, const std::string& bytes) {
  return workloads_.Of(key, [&] {
    const std::optional<TaskFacts> facts = FactsOfWorkload(bytes);
    Json json = {{"workload", key}, {"task", name}, {"flops", nullptr}, {"bytes", nullptr}, {"dtype", nullptr}};
    if (!facts.has_value()) return json;
    json["flops"] = facts->flops;
    json["bytes"] = facts->bytes;
    json["dtype"] = facts->dtype;
    return json;
  });
}

absl::StatusOr<int> HistoryFeed::WorkloadOf(const std::string& key, const std::string& name, int64_t record) {
  const auto known = workloads_.index.find(key);
  if (known != workloads_.index.end()) return known->second;
  const absl::StatusOr<TuningRecord> whole = history_->Get(record);  // a damaged one is shown without its facts
  return AddWorkload(key, name, whole.ok() ? whole->workload : "");
}

absl::Status HistoryFeed::ReadNetworks() {
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> links, history_->NetworkTasks());
  networks_ = Json::array();
  for (const NetworkTask& link : links) {
    if (networks_.empty() || networks_.back()["network"] != link.network)
      networks_.push_back({{"network", link.network}, {"tasks", Json::array()}});
    networks_.back()["tasks"].push_back({{"workload", AddWorkload(link.workload_key, link.task_name, link.workload)},
                                         {"task", link.task_name},
                                         {"count", link.weight}});
  }
  ASSIGN_OR_RETURN(const std::vector<NetworkLatency> latencies, TrialLog(*history_).Latencies());
  latencies_ = Json::array();
  for (const NetworkLatency& one : latencies) {
    latencies_.push_back({{"network", one.network},
                          {"target", one.target},
                          {"device", one.device_model},
                          {"latency_us", Micros(one.measured)},
                          {"tasks_us", Micros(one.tasks)},
                          {"measured_at", Rfc3339(one.measured_at)}});
  }
  return absl::OkStatus();
}

absl::Status HistoryFeed::ReadRuns() {
  ASSIGN_OR_RETURN(const std::vector<TuningRun> runs, history_->Runs());
  runs_ = Json::array();
  for (const TuningRun& run : runs) {
    runs_.push_back({{"run", run.id},
                     {"command_line", run.command_line},
                     {"host", run.host},
                     {"version", run.version},
                     {"seed", absl::StrCat(run.seed)},
                     {"started_at", Rfc3339(run.started_at)},
                     {"ended_at", run.ended_at > 0 ? Json(Rfc3339(run.ended_at)) : Json(nullptr)}});
  }
  return absl::OkStatus();
}

absl::Status HistoryFeed::AddRow(const TrialRow& row) {
  Row added;
  added.state = {row.id, row.median, row.stopped_early, row.verified};
  added.run = row.run_id;
  added.trial = row.trial;
  added.created_at = row.created_at;
  added.predicted = row.predicted;
  ASSIGN_OR_RETURN(added.workload, WorkloadOf(row.workload_key, row.task_name, row.id));
  added.place = places_.Of(absl::StrCat(row.target, "\n", row.device_model),
                           [&] { return PlaceJson(row.target, row.device_model); });
  added.sketch = sketches_.Of(row.sketch, [&] { return Json(row.sketch); });
  if (!row.error_kind.empty()) {
    added.error = errors_.Of(absl::StrCat(row.error_kind, "\n", row.error_stage, "\n", row.error_text), [&] {
      return Json{{"kind", row.error_kind}, {"stage", row.error_stage}, {"text", row.error_text}};
    });
  }
  if (origin_ == 0) origin_ = row.created_at;
  rows_.push_back(added);
  return absl::OkStatus();
}

HistoryFeed::Mark HistoryFeed::Here() const {
  return {workloads_.list.size(), places_.list.size(), sketches_.list.size(), errors_.list.size(), rows_.size()};
}

Json HistoryFeed::RowsFrom(size_t first) const {
  Json id = Json::array(), run = id, workload = id, place = id, sketch = id, trial = id, after = id, median = id,
       raced = id, predicted = id, error = id, verified = id;
  for (size_t i = first; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    id.push_back(row.state.id);
    run.push_back(row.run);
    workload.push_back(row.workload);
    place.push_back(row.place);
    sketch.push_back(row.sketch);
    trial.push_back(row.trial);
    after.push_back((row.created_at - origin_) / 1000);
    median.push_back(Micros(row.state.median));
    raced.push_back(row.state.stopped_early ? 1 : 0);
    predicted.push_back(Micros(row.predicted));
    error.push_back(row.error);
    verified.push_back(static_cast<int>(row.state.verified));
  }
  return {{"record", id},           {"run", run},
          {"workload", workload},   {"place", place},
          {"sketch", sketch},       {"trial", trial},
          {"after_us", after},      {"median_us", median},
          {"stopped_early", raced}, {"predicted_us", predicted},
          {"error", error},         {"verified", verified}};
}

void HistoryFeed::AddTables(const Mark& from, Json& json) const {
  json["total_trials"] = total_;
  json["workloads"] = Rest(workloads_.list, from.workloads);
  json["places"] = Rest(places_.list, from.places);
  json["sketches"] = Rest(sketches_.list, from.sketches);
  json["errors"] = Rest(errors_.list, from.errors);
  json["networks"] = networks_;
  json["latencies"] = latencies_;
  json["runs"] = runs_;
  json["trials"] = RowsFrom(from.rows);
}

Json HistoryFeed::Snapshot() const {
  Json json = {
      {"schema", kSnapshotSchema},
      {"version", version_},
      {"history", IsPostgresUri(history_->path()) ? history_->path()
                                                  : std::filesystem::path(history_->path()).filename().string()},
      {"origin", Rfc3339(origin_)},
      {"verified_names", VerifiedNames()}};
  AddTables({}, json);
  return json;
}

absl::StatusOr<Json> HistoryFeed::ApplyStates(const std::vector<TrialState>& states, bool* gone) {
  Json id = Json::array(), median = id, raced = id, verified = id;
  auto state = states.begin();
  for (Row& row : rows_) {
    state = std::find_if(state, states.end(), [&](const TrialState& one) { return one.id >= row.state.id; });
    if (state == states.end() || state->id != row.state.id) {
      *gone = true;
      return Json();
    }
    if (*state == row.state) continue;
    row.state = *state;
    id.push_back(row.state.id);
    median.push_back(Micros(row.state.median));
    raced.push_back(row.state.stopped_early ? 1 : 0);
    verified.push_back(static_cast<int>(row.state.verified));
  }
  return Json{{"record", id}, {"median_us", median}, {"stopped_early", raced}, {"verified", verified}};
}

absl::StatusOr<std::optional<HistoryFeed::Change>> HistoryFeed::Poll() {
  ASSIGN_OR_RETURN(const int64_t counter, TrialLog(*history_).ChangeCounter());
  if (counter == counter_ && !reload_) return std::nullopt;
  const bool again = std::exchange(reload_, true);
  ASSIGN_OR_RETURN(std::optional<Change> change, again ? ReadAgain() : ReadChange());
  reload_ = false;
  counter_ = counter;
  return change;
}

absl::StatusOr<std::optional<HistoryFeed::Change>> HistoryFeed::ReadAgain() {
  RETURN_IF_ERROR(Reload());
  ++version_;
  return Change{true, nullptr};
}

absl::StatusOr<std::optional<HistoryFeed::Change>> HistoryFeed::ReadChange() {
  const Mark from = Here();
  const Json before = {networks_, latencies_, runs_};
  ASSIGN_OR_RETURN(total_, TrialLog(*history_).Count());
  RETURN_IF_ERROR(ReadNetworks());
  RETURN_IF_ERROR(ReadRuns());
  ASSIGN_OR_RETURN(const std::vector<TrialRow> trials,
                   TrialLog(*history_).Trials(rows_.empty() ? 0 : rows_.back().state.id, options_.most));
  for (const TrialRow& trial : trials) RETURN_IF_ERROR(AddRow(trial));
  ASSIGN_OR_RETURN(const std::vector<TrialState> states,
                   TrialLog(*history_).States(rows_.empty() ? 0 : rows_.front().state.id));
  bool gone = false;
  ASSIGN_OR_RETURN(Json changed, ApplyStates(states, &gone));
  if (gone) return ReadAgain();
  if (trials.empty() && changed["record"].empty() && before == Json{networks_, latencies_, runs_}) return std::nullopt;
  Change change{false, {{"schema", kChangeSchema}, {"version", ++version_}, {"origin", Rfc3339(origin_)}}};
  AddTables(from, change.delta);
  change.delta["changed"] = std::move(changed);
  return change;
}

}  // namespace diapason
