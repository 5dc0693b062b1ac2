// What a service keeps for its jobs besides their list: the history, rounds, models and cost models.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/job_manager.h"
#include "service/job_store.h"
#include "service/model_store.h"

namespace diapason {

class BlobStore;
class RoundStore;

// Safe from any thread, once it is open: each store locks itself.
class JobFiles {
 public:
  explicit JobFiles(const JobManagerOptions& options);
  ~JobFiles();

  // Opens all, with the errors of these; `jobs`: the list of jobs.
  absl::Status Open(std::unique_ptr<JobStore>& jobs);

  History& history() const { return *history_; }
  ModelStore& models() const { return *models_; }
  RoundStore& rounds() const { return *rounds_; }

  // NotFound, with how to fix it, when a model that was sent is not there.
  absl::Status FindModel(const v1::TuneSpec& spec, const std::string& remedy) const;
  // What the model of a job is read from.
  absl::StatusOr<std::string> BringModel(const v1::TuneSpec& spec) const;

  // Where the tuner has the cost model of a job.
  std::string CostModelPath(int64_t job) const;
  // Out of the database, where it is kept there. A copy of an earlier time, before another service had the job, goes in
  // any case.
  absl::Status BringCostModel(int64_t job) const;
  // Into the database.
  void KeepCostModel(int64_t job) const;
  void EraseCostModel(int64_t job) const;

 private:
  absl::Status OpenLocal(std::unique_ptr<JobStore>& jobs);
  absl::Status OpenShared(std::unique_ptr<JobStore>& jobs);

  const JobManagerOptions& options_;
  const std::string folder_;          // of models and cost models
  std::unique_ptr<BlobStore> blobs_;  // null: models are files alone
  std::unique_ptr<ModelStore> models_;
  std::unique_ptr<History> history_;
  std::unique_ptr<RoundStore> rounds_;
};

}  // namespace diapason
