// Records of a history in readable form.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/explanation.h"
#include "api/parameter_names.h"
#include "api/record.h"
#include "base/check.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "diapason/explain.h"
#include "service/records.h"

namespace diapason::api {
namespace {

// The largest share first.
absl::StatusOr<std::vector<Explanation::Share>> SharesOf(::diapason::History& history, const TuningRecord& record) {
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> links, history.NetworkTasks());
  std::vector<Explanation::Share> shares;
  for (const NetworkTask& link : links) {
    if (link.workload_key != record.workload_key) continue;
    RecordFilter filter;
    filter.target = record.target;
    filter.device_model = record.device_model;
    filter.network = link.network;
    ASSIGN_OR_RETURN(std::vector<TuningRecord> best, history.TopK(filter, 1));
    KeepTarget(record.target, best);
    ASSIGN_OR_RETURN(const auto counts, CountsOf(history, link.network));
    std::vector<Record> records;
    for (const TuningRecord& one : best) records.push_back(RecordOf(one));
    RankByShare(counts, records);
    for (const Record& one : records)
      if (one.workload == record.workload_key) shares.push_back({link.network, link.weight, one.share.value_or(0)});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return shares;
}

void ExplainOutcome(const TuningRecord& record, double flops, Explanation* e) {
  if (const Timing* timing = record.timing()) {
    const double median = MedianSeconds(*timing);
    e->measured = {median * 1e6, {}, timing->number, timing->stopped_early, flops / median / 1e9};
    for (const double sample : timing->samples) e->measured->samples_us.push_back(sample * 1e6);
  } else {
    const MeasureError& error = *record.error();
    e->failed = {ErrorKindName(error.kind), StageName(error.stage), error.text};
  }
}

}  // namespace

absl::StatusOr<Explanation> ExplainRecord(const std::string& path, int64_t id) {
  ASSIGN_OR_RETURN(const auto history, ::diapason::History::Open(path, HistoryMode::kReadOnly));
  return ExplainRecordOf(*history, id);
}

absl::StatusOr<Explanation> ExplainRecordOf(::diapason::History& history, int64_t id) {
  ASSIGN_OR_RETURN(const TuningRecord record, history.Get(id));
  ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(record.workload));
  ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
  ASSIGN_OR_RETURN(const Target target, Target::Parse(record.target));
  const DeviceFacts facts = ResolveFacts(target);
  Explanation e;
  e.record = record.id;
  e.trial = record.trial;
  e.workload = record.workload_key;
  e.task = record.task_name;
  e.target = record.target;
  e.device = record.device_model;
  if (record.predicted.has_value()) e.predicted_us = *record.predicted * 1e6;
  e.verification = VerifiedName(record.verified);
  e.verification_text = record.verify_text;
  ExplainOutcome(record, dag.flops(), &e);
  const auto spaces = TaskSpace::Create(dag, target, facts);
  const Space* space = spaces.ok() ? SpaceOf(**spaces, schedule, record) : nullptr;
  ExplainSchedule({dag, schedule, target, facts, space}, &e);
  ASSIGN_OR_RETURN(e.shares, SharesOf(history, record));
  return e;
}

}  // namespace diapason::api
