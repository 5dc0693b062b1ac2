#include "service/job_files.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/blobs.h"
#include "db/history.h"
#include "db/history_name.h"
#include "db/rounds.h"
#include "db/service_tables.h"
#include "diapason/v1/tuning.pb.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

// For other writers, and for a database that is away, while all calls wait.
constexpr std::chrono::milliseconds kJobsBusy{3000};

std::string CostModelName(int64_t job) { return absl::StrCat("job-", job, ".model"); }

}  // namespace

JobFiles::JobFiles(const JobManagerOptions& options)
    : options_(options), folder_(StatePath(options.history, ".models")) {}
JobFiles::~JobFiles() = default;

absl::Status JobFiles::Open(std::unique_ptr<JobStore>& jobs) {
  HistoryOptions history;
  history.fence = options_.fence;
  ASSIGN_OR_RETURN(history_, History::Open(options_.history, HistoryMode::kCreate, std::move(history)));
  RETURN_IF_ERROR(IsPostgresUri(options_.history) ? OpenShared(jobs) : OpenLocal(jobs));
  models_ = std::make_unique<ModelStore>(folder_, options_.models, blobs_.get());
  return models_->RemoveStale();
}

absl::Status JobFiles::OpenLocal(std::unique_ptr<JobStore>& jobs) {
  ASSIGN_OR_RETURN(jobs, JobStore::Open(StatePath(options_.history, ".jobs")));
  ASSIGN_OR_RETURN(rounds_, RoundStore::Open(StatePath(options_.history, ".rounds")));
  return absl::OkStatus();
}

// Each has a connection of its own.
absl::Status JobFiles::OpenShared(std::unique_ptr<JobStore>& jobs) {
  PostgresOptions options;
  options.fence = options_.fence;
  if (options_.fence != nullptr) options.idle_timeout = options_.fence->lasts();
  ASSIGN_OR_RETURN(std::unique_ptr<Database> rounds, OpenServiceTables(options_.history, options));
  ASSIGN_OR_RETURN(std::unique_ptr<Database> blobs, OpenServiceTables(options_.history, options));
  options.busy_timeout = kJobsBusy;
  ASSIGN_OR_RETURN(std::unique_ptr<Database> table, OpenServiceTables(options_.history, options));
  rounds_ = RoundStore::OpenShared(std::move(rounds));
  blobs_ = std::make_unique<BlobStore>(std::move(blobs));
  jobs = JobStore::OpenShared(std::move(table));
  return absl::OkStatus();
}

absl::Status JobFiles::FindModel(const v1::TuneSpec& spec, const std::string& remedy) const {
  if (spec.model_hash().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool there, models_->Has(spec.model_hash()));
  if (there) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the service does not have the model '", spec.model(), "'", remedy));
}

absl::StatusOr<std::string> JobFiles::BringModel(const v1::TuneSpec& spec) const {
  if (spec.model_hash().empty()) return spec.model();
  RETURN_IF_ERROR(models_->Bring(spec.model_hash()));
  return models_->PathOf(spec.model_hash());
}

std::string JobFiles::CostModelPath(int64_t job) const { return absl::StrCat(folder_, "/", CostModelName(job)); }

absl::Status JobFiles::BringCostModel(int64_t job) const {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
  if (blobs_ == nullptr) return absl::OkStatus();
  std::ofstream file(CostModelPath(job), std::ios::binary | std::ios::trunc);
  const absl::Status brought = blobs_->Get(CostModelName(job), [&](std::string_view data) {
    file.write(data.data(), static_cast<std::streamsize>(data.size()));
    return absl::OkStatus();
  });
  file.close();
  if (!brought.ok() || !file) std::filesystem::remove(CostModelPath(job), ignored);
  // Without one the job trains another from its records.
  return absl::IsNotFound(brought) ? absl::OkStatus() : brought;
}

void JobFiles::KeepCostModel(int64_t job) const {
  std::error_code ignored;
  if (blobs_ == nullptr || !std::filesystem::exists(CostModelPath(job), ignored)) return;
  if (const absl::Status kept = blobs_->Put(CostModelName(job), CostModelPath(job)); !kept.ok())
    LogEvent(LogLevel::kWarning, "cost_model_not_kept",
             {{"job", absl::StrCat(job)}, {"why", std::string(kept.message())}});
}

void JobFiles::EraseCostModel(int64_t job) const {
  std::error_code ignored;
  std::filesystem::remove(CostModelPath(job), ignored);
  if (blobs_ != nullptr)
    blobs_->Erase(CostModelName(job)).IgnoreError();  // the job is gone; what is left has no reader
}

}  // namespace diapason
