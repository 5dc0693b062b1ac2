#include "api/page_sources.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/documents.h"
#include "api/fleet_status.h"
#include "api/import.h"
#include "api/job.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/json.h"
#include "base/run_program.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_manager.h"
#include "service/server.h"
#include "worker/fleet_status.h"

namespace diapason::api {
namespace {

constexpr double kExplainSeconds = 30;
constexpr size_t kMostExplained = size_t{32} << 20;
constexpr size_t kMostJobs = 200;
constexpr size_t kJobBytes = 16 << 20;

absl::StatusOr<Json> Explain(const std::string& history, int64_t record) {
  ProgramOptions options;
  options.args = {Program(), "explain", "--json", "--record", absl::StrCat(record)};
  // Everybody on the host sees arguments, and a URI may hold a password.
  options.environment = WholeEnvironment();
  std::erase_if(options.environment, [](const std::string& v) { return v.rfind("DIAPASON_HISTORY=", 0) == 0; });
  options.environment.push_back("DIAPASON_HISTORY=" + history);
  options.timeout_seconds = kExplainSeconds;
  options.max_output_bytes = kMostExplained;
  const absl::StatusOr<ProgramResult> result = RunProgram(options);
  if (absl::IsDeadlineExceeded(result.status())) {
    return absl::UnknownError(
        absl::StrCat("record ", record, " could not be explained within ", kExplainSeconds, " s"));
  }
  RETURN_IF_ERROR(result.status());
  if (result->exit_code != 0) {
    std::string reason = result->errors.substr(0, result->errors.find('\n'));
    if (reason.rfind("error: ", 0) == 0) reason = reason.substr(7);
    const std::string sentence =
        reason.empty() ? absl::StrCat("record ", record, " could not be explained: the program ended with status ",
                                      result->exit_code)
                       : reason;
    return reason.find("no record") != std::string::npos ? absl::NotFoundError(sentence) : absl::UnknownError(sentence);
  }
  Json json = ParseJson(result->output);
  if (!json.is_object()) return absl::UnknownError(absl::StrCat("the explanation of record ", record, " is cut off"));
  return json;
}

// As `jobs show --json`, with the limits of the job.
Json PageJob(const v1::Job& job) {
  Json json = JobFields(JobOf(job));
  json["trial_limit"] = job.spec().trials() > 0 ? Json(job.spec().trials()) : Json(nullptr);
  json["time_limit_s"] = job.spec().seconds() > 0 ? Json(job.spec().seconds()) : Json(nullptr);
  return json;
}

}  // namespace

std::function<absl::StatusOr<Json>(int64_t record)> ExplainApart(const std::string& history) {
  return [history](int64_t record) { return Explain(history, record); };
}

::diapason::PageOptions::Source JobsSource(CoordinatorServer& server) {
  return [&server]() -> absl::StatusOr<Json> {
    Json jobs = Json::array();
    int64_t next = 0;
    for (const v1::Job& job : server.jobs().List(0, kJobBytes, next)) {
      if (jobs.size() < kMostJobs) jobs.push_back(PageJob(job));
    }
    return jobs;
  };
}

std::function<absl::StatusOr<Json>(int64_t job)> JobSource(CoordinatorServer& server) {
  return [&server](int64_t id) -> absl::StatusOr<Json> {
    ASSIGN_OR_RETURN(const v1::Job job, server.jobs().Get(id, 0, std::chrono::milliseconds(0)));
    return PageJob(job);
  };
}

::diapason::PageOptions::Source FleetSource(const std::string& tracker,
                                            std::shared_ptr<const ClientCredentials> credentials) {
  return [tracker, credentials = std::move(credentials)]() -> absl::StatusOr<Json> {
    ASSIGN_OR_RETURN(::diapason::FleetStatus status, AskFleetStatus(tracker, 2, credentials));
    return FleetFields(FleetStatusOf(std::move(status)));
  };
}

}  // namespace diapason::api
