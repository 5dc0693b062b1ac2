#include "diapason/service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/documents.h"
#include "api/endpoint.h"
#include "api/job.h"
#include "api/launch.h"
#include "api/tune_spec.h"
#include "base/check.h"
#include "diapason/v1/tuning.pb.h"
#include "service/service_client.h"

namespace diapason::api {
namespace {

absl::StatusOr<Job> Known(const absl::StatusOr<v1::Job>& job) {
  RETURN_IF_ERROR(job.status());
  return JobOf(*job);
}

}  // namespace

class Service::Impl {
 public:
  Impl(Endpoint endpoint, std::unique_ptr<ServiceClient> client)
      : endpoint(std::move(endpoint)), client(std::move(client)) {}
  // Of the tracker, with the same credentials.
  Endpoint tracker() const {
    Endpoint tracker = endpoint;
    tracker.address = client->tracker();
    return tracker;
  }

  const Endpoint endpoint;
  const std::unique_ptr<ServiceClient> client;
};

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;

absl::StatusOr<std::unique_ptr<Service>> Service::Connect(const Endpoint& service, double patience) {
  ASSIGN_OR_RETURN(std::unique_ptr<ServiceClient> client, ConnectService(service, patience));
  return std::unique_ptr<Service>(new Service(std::make_unique<Impl>(service, std::move(client))));
}

const std::string& Service::tracker() const { return impl_->client->tracker(); }

absl::StatusOr<FleetStatus> Service::Fleet(double patience_seconds) {
  return AskFleet(impl_->tracker(), patience_seconds);
}

absl::StatusOr<int64_t> Service::Submit(const TuneOptions& options) {
  ASSIGN_OR_RETURN(TuneSpec spec, SpecOf(options));
  return impl_->client->Submit(std::move(spec));
}

absl::StatusOr<std::vector<Job>> Service::Jobs() {
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, impl_->client->List());
  std::vector<Job> known;
  known.reserve(jobs.size());
  for (const v1::Job& job : jobs) known.push_back(JobOf(job));
  return known;
}

absl::StatusOr<Job> Service::Get(int64_t job) { return Known(impl_->client->Get(job)); }

absl::StatusOr<Job> Service::Wait(int64_t job, uint64_t seen, double wait_seconds) {
  return Known(impl_->client->Get(job, seen, wait_seconds));
}

absl::StatusOr<Job> Service::Cancel(int64_t job) { return Known(impl_->client->Cancel(job)); }

absl::StatusOr<Job> Service::Resume(int64_t job, int64_t trials) { return Known(impl_->client->Resume(job, trials)); }

absl::StatusOr<std::unique_ptr<LaunchedWorkers>> Service::Launch(int64_t job, const LaunchRequest& request) {
  RETURN_IF_ERROR(CheckOptions(request));
  auto workers = std::make_unique<LaunchedWorkers::Impl>(request);
  WorkersPurpose purpose;
  purpose.tracker = purpose.status = tracker();
  ASSIGN_OR_RETURN(purpose.credentials, CredentialsFor("--service", impl_->tracker()));
  purpose.owner = absl::StrCat("job ", job, " of ", impl_->endpoint.address);
  purpose.used_up = [used_up = &workers->used_up] { *used_up = true; };
  ASSIGN_OR_RETURN(workers->pool, StartWorkers(request, std::move(purpose)));
  return std::unique_ptr<LaunchedWorkers>(new LaunchedWorkers(std::move(workers)));
}

absl::Status Service::Delete(int64_t job) { return impl_->client->Delete(job); }

std::string JobJson(const Job& job) { return DocumentText({"job", 2}, JobFields(job)); }

std::string JobsJson(const std::vector<Job>& jobs) {
  Json list = Json::array();
  for (const Job& job : jobs) list.push_back(JobFields(job));
  return DocumentText({"jobs", 2}, {{"jobs", list}});
}

}  // namespace diapason::api
