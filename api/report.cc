#include "diapason/report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/documents.h"
#include "api/explanation.h"
#include "api/import.h"
#include "base/check.h"
#include "base/json.h"
#include "db/history.h"
#include "ui/feed.h"
#include "ui/report.h"

namespace diapason::api {
namespace {

// Those that a reader is most likely to look at: the best record of the tasks that take most of a network's time, and
// of tasks of no network behind them.
absl::StatusOr<std::vector<int64_t>> RecordsToExplain(::diapason::History& history, int64_t most) {
  ASSIGN_OR_RETURN(const std::vector<TuningRecord> best, history.TopK({}, 1));
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> links, history.NetworkTasks());
  std::map<std::string, double> counts;
  for (const NetworkTask& link : links) {
    double& count = counts[link.workload_key];
    count = std::max(count, link.weight);
  }
  std::vector<std::pair<double, int64_t>> by_time;
  for (const TuningRecord& record : best)
    by_time.emplace_back(-counts[record.workload_key] * MedianSeconds(*record.timing()), record.id);
  std::sort(by_time.begin(), by_time.end());
  std::vector<int64_t> ids;
  for (const auto& [time, id] : by_time)
    if (static_cast<int64_t>(ids.size()) < most) ids.push_back(id);
  return ids;
}

// By id.
absl::StatusOr<Json> ExplainedRecords(::diapason::History& history, const ReportOptions& options) {
  Json records = Json::object();
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, RecordsToExplain(history, options.details));
  for (const int64_t id : ids) {
    RETURN_IF_ERROR(CheckStop(options.hooks, "the report was made"));
    const absl::StatusOr<Explanation> explained = ExplainRecordOf(history, id);
    if (explained.ok()) {
      records[absl::StrCat(id)] = ExplanationFields(*explained);
    } else {
      Warn(options.hooks,
           absl::StrCat("record ", id, " is without details: ", std::string(explained.status().message())));
    }
  }
  return records;
}

}  // namespace

absl::StatusOr<Report> WriteReport(const ReportOptions& options) {
  if (options.details < 0)
    return absl::InvalidArgumentError(absl::StrCat("details is ", options.details, "; give a number of at least 0"));
  ASSIGN_OR_RETURN(const std::unique_ptr<HistoryFeed> feed, HistoryFeed::Open(options.history));
  ASSIGN_OR_RETURN(Json records, ExplainedRecords(feed->history(), options));
  const std::string html = ReportHtml({{"history", feed->Snapshot()}, {"records", std::move(records)}});
  RETURN_IF_ERROR(::diapason::WriteReport(options.out, html));
  return Report{static_cast<int64_t>(html.size())};
}

}  // namespace diapason::api
