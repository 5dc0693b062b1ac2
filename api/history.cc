#include "diapason/history.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/endpoint.h"
#include "api/record.h"
#include "base/check.h"
#include "compiler/tensor/target.h"
#include "db/history.h"
#include "db/history_name.h"
#include "service/records.h"
#include "service/tune_spec.h"

namespace diapason::api {

std::string HistoryName(const std::string& history) { return ::diapason::HistoryName(history); }
bool IsDatabase(const std::string& history) { return IsPostgresUri(history); }

Record RecordOf(const TuningRecord& record) {
  Record known;
  known.id = record.id;
  known.uuid = record.uuid;
  known.workload = record.workload_key;
  known.task = record.task_name;
  known.target = record.target;
  known.device = record.device_model;
  known.median_us = MedianSeconds(*record.timing()) * 1e6;
  for (double sample : record.timing()->samples) known.samples_us.push_back(sample * 1e6);
  known.stopped_early = record.timing()->stopped_early;
  known.trial = record.trial;
  known.verification = VerifiedName(record.verified);
  known.algorithm = record.rewrite;
  known.sketch = record.sketch;
  known.seed = record.seed;
  known.created_at = record.created_at;
  return known;
}

void RankByShare(const std::map<std::string, double>& counts, std::vector<Record>& records) {
  using Place = std::pair<std::string, std::string>;  // target, device
  std::map<Place, double> total;
  std::map<std::pair<Place, std::string>, double> time;  // of the best record of each workload: the first one
  for (Record& record : records) {
    const auto count = counts.find(record.workload);
    record.count = count == counts.end() ? 0 : count->second;
    const Place place{record.target, record.device};
    const auto [one, first] = time.emplace(std::pair(place, record.workload), *record.count * record.median_us);
    if (first) total[place] += one->second;
  }
  for (Record& record : records) {
    const Place place{record.target, record.device};
    record.share = total[place] > 0 ? time[{place, record.workload}] / total[place] : 0;
  }
  std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    if (Place(a.target, a.device) != Place(b.target, b.device))
      return Place(a.target, a.device) < Place(b.target, b.device);
    return *a.share > *b.share;
  });
}

absl::StatusOr<RecordFilter> FilterOf(const RecordQuery& query) {
  RecordFilter filter;
  filter.workload = query.workload;
  filter.device_model = query.device;
  if (!query.target.empty()) {
    ASSIGN_OR_RETURN(Target target, Target::Parse(query.target));
    target.norms = Norms::kEither;  // of no record
    filter.target = target.ToString();
  }
  if (!query.network.empty()) filter.network = NetworkName(query.network);
  return filter;
}

absl::Status CheckKeep(int64_t keep) {
  if (keep >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the best ", keep, " records are to be kept; keep 1 or more"));
}

namespace {

absl::Status CheckTop(int64_t top) {
  if (top >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the best ", top, " records are asked for; ask for 1 or more"));
}

}  // namespace

class History::Impl {
 public:
  explicit Impl(std::unique_ptr<::diapason::History> history) : history(std::move(history)) {}
  const std::unique_ptr<::diapason::History> history;
};

History::History(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
History::~History() = default;

absl::StatusOr<std::unique_ptr<History>> History::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<::diapason::History> history,
                   ::diapason::History::Open(path, HistoryMode::kReadOnly));
  return std::unique_ptr<History>(new History(std::make_unique<Impl>(std::move(history))));
}

absl::StatusOr<std::vector<Record>> History::Query(const RecordQuery& query, int64_t top) {
  RETURN_IF_ERROR(CheckTop(top));
  ASSIGN_OR_RETURN(const RecordFilter filter, FilterOf(query));
  const absl::Status known = ::diapason::CheckNetwork(*impl_->history, filter.network, impl_->history->path());
  if (absl::IsNotFound(known)) {
    return absl::NotFoundError(absl::StrCat(std::string(known.message()), "; `diapason history info ",
                                            impl_->history->path(), "` lists those it has"));
  }
  RETURN_IF_ERROR(known);
  ASSIGN_OR_RETURN(const std::vector<TuningRecord> found, impl_->history->TopK(filter, top));
  std::vector<Record> records;
  for (const TuningRecord& record : found) records.push_back(RecordOf(record));
  if (filter.network.empty()) return records;
  ASSIGN_OR_RETURN(const auto counts, CountsOf(*impl_->history, filter.network));
  RankByShare(counts, records);
  return records;
}

absl::StatusOr<std::vector<Record>> QueryService(const Endpoint& service, const RecordQuery& query, int64_t top) {
  RETURN_IF_ERROR(CheckTop(top));
  ASSIGN_OR_RETURN(const RecordFilter filter, FilterOf(query));
  ASSIGN_OR_RETURN(const std::unique_ptr<ServiceClient> client, ConnectService(service));
  std::map<std::string, double> counts;
  ASSIGN_OR_RETURN(const std::vector<TuningRecord> found, client->Query(filter, top, &counts));
  std::vector<Record> records;
  for (const TuningRecord& record : found) records.push_back(RecordOf(record));
  if (!filter.network.empty()) RankByShare(counts, records);
  return records;
}

absl::StatusOr<std::optional<Record>> History::Best(const std::string& workload, const std::string& device,
                                                    const std::string& target) {
  RecordQuery query;
  query.target = target;
  ASSIGN_OR_RETURN(const RecordFilter filter, FilterOf(query));
  ASSIGN_OR_RETURN(const std::optional<TuningRecord> best,
                   impl_->history->BestForBuild(workload, device, filter.target));
  return best.has_value() ? std::optional<Record>(RecordOf(*best)) : std::nullopt;
}

absl::StatusOr<HistorySummary> History::Summary() {
  ASSIGN_OR_RETURN(const HistoryInfo info, impl_->history->Info());
  HistorySummary summary;
  summary.path = HistoryName(impl_->history->path());
  summary.schema_version = info.schema_version;
  summary.file_bytes = info.bytes;
  summary.record_count = info.records;
  summary.failed = info.failed;
  summary.runs = info.runs;
  summary.first_at = info.first_at;
  summary.last_at = info.last_at;
  summary.errors = info.errors;
  for (const HistoryInfo::Workload& w : info.workloads) {
    HistorySummary::Workload workload{w.workload_key, w.task_name, w.target,   w.device_model,
                                      w.records,      w.failed,    w.verified, {}};
    if (w.best_seconds.has_value()) workload.best_us = *w.best_seconds * 1e6;
    summary.workloads.push_back(std::move(workload));
  }
  for (const HistoryInfo::Device& d : info.devices) summary.devices.push_back({d.model, d.uuid, d.records});
  for (const HistoryInfo::Network& n : info.networks) summary.networks.push_back({n.name, n.tasks});
  return summary;
}

}  // namespace diapason::api
