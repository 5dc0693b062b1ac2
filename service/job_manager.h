// Runs tuning jobs: several at once, each a tuner over the fleet and the one history, kept on disk so that a service
// that was killed resumes all of them.
//
// What a job has measured is in the history before it is reported; a job that is taken up again starts from
// there (scheduler/tuner.h). Of the moments before a kill only what was still being measured is measured again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/import_model.h"
#include "service/model_store.h"

namespace diapason {

class History;
class WriteFence;
struct ClientCredentials;
namespace v1 {
class Job;
class TuneSpec;
}  // namespace v1

struct JobManagerOptions {
  // Jobs are kept in its ".jobs", rounds in ".rounds", models and cost models in ".models" (StatePath); all of them in
  // the database where it is in PostgreSQL (db/service_tables.h), with ".models" for copies.
  std::string history;
  std::shared_ptr<const WriteFence> fence;  // of PostgreSQL: nothing is written where it says no; null: no other writes
  int running = 4;                          // jobs at once
  int unfinished = 256;                     // queued and running ones; more are refused
  int unfinished_per_token = 128;
  int jobs = 16384;  // those that have ended included
  // A job that the fleet fails (no worker, no tracker) is tried again after so long, for ever.
  double retry_seconds = 10;
  double give_up_seconds = 60;                           // a tracker that is away for so long fails the attempt
  std::shared_ptr<const ClientCredentials> credentials;  // for the tracker
  ImportLimits import;                                   // of the process that reads a model
  ModelStoreLimits models;
};

// Safe from any thread. Statuses are those that tuning.proto lists.
class JobManager {
 public:
  // Opens history, jobs and models, with the errors of these.
  static absl::StatusOr<std::unique_ptr<JobManager>> Open(JobManagerOptions options);
  // Stops.
  ~JobManager();
  JobManager(const JobManager&) = delete;
  JobManager& operator=(const JobManager&) = delete;

  // Begins to run jobs on the fleet of this tracker, those that an earlier service left unfinished first.
  void Run(const std::string& tracker);
  // Ends the tuners, each with what it measures stored; their jobs are resumed at the next start. Idempotent.
  void Stop();

  // `owner`: name of the caller's token, for its quota; empty: no quota.
  absl::StatusOr<int64_t> Submit(const std::string& key, const v1::TuneSpec& spec, const std::string& owner = "");
  // Newest first, without their tasks: those with an id below `before` (0: all), until they have `most_bytes`. `next`:
  // what the rest has to be asked for with as `before`; 0: there is none.
  std::vector<v1::Job> List(int64_t before, size_t most_bytes, int64_t& next);
  // Waits until the job's version is above `seen`, at most so long.
  absl::StatusOr<v1::Job> Get(int64_t job, uint64_t seen, std::chrono::milliseconds wait);
  absl::StatusOr<v1::Job> Cancel(int64_t job);
  // `trials`: a new limit; 0: as before. The job is `owner`'s from then on, as one that was submitted.
  absl::StatusOr<v1::Job> Resume(int64_t job, int64_t trials, const std::string& owner = "");
  absl::Status Delete(int64_t job);

  History& history();
  ModelStore& models();
  // Hashes of the models that unfinished jobs have.
  std::set<std::string> ModelsInUse();

 private:
  class Impl;
  explicit JobManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
