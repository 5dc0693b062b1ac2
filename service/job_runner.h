// One tuning job from its options to its end: the model is read, the tuner works on the fleet, the network is checked.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/job_files.h"
#include "service/job_manager.h"
#include "service/job_table.h"
#include "service/preparation_turns.h"
#include "service/tune_spec.h"

namespace diapason {

struct Fleet;

// Safe from any thread.
class JobRunner {
 public:
  // What it is given outlives it.
  JobRunner(const JobManagerOptions& options, const JobFiles& files, JobTable& jobs, PreparationTurns& turns)
      : options_(options), files_(files), jobs_(jobs), turns_(turns) {}

  // What `tune` would refuse is refused. Errors name a model as its submitter does.
  absl::Status Check(const TuneSpec& spec, const v1::TuneSpec& message) const;
  // Runs a job that the table has begun, on the fleet of this tracker, up to JobTable::End.
  void Run(JobTable::Entry& entry, const v1::Job& job, const std::string& tracker) const;

 private:
  absl::StatusOr<std::string> Tune(JobTable::Entry& entry, const v1::Job& job, const std::string& tracker) const;
  // Prepares at the job's turn, which its table knows of.
  absl::Status InTurn(JobTable::Entry& entry, const std::function<absl::Status()>& prepare) const;
  // With the turn held.
  absl::StatusOr<TuneWork> Read(TuneSpec spec, const v1::TuneSpec& message, const PrepareOptions& options) const;
  absl::StatusOr<Fleet> Connect(JobTable::Entry& entry, const TuneSpec& spec, const std::string& tracker,
                                const std::string& name, const std::string& job) const;
  absl::StatusOr<TunerOptions> OptionsFor(const TuneSpec& spec, const TuneWork& work, const Fleet& fleet,
                                          const v1::Job& job) const;
  // Whether the network is right at last; the outcome is in the job's progress.
  absl::Status CheckNetworkOf(JobTable::Entry& entry, const TuneSpec& spec, const v1::Job& job, const Fleet& fleet,
                              double tuned_seconds) const;
  absl::StatusOr<std::vector<ImportedPlan>> ReadNetworks(JobTable::Entry& entry, const TuneSpec& spec,
                                                         const v1::TuneSpec& message,
                                                         const FusionPreferences& fusion) const;

  const JobManagerOptions& options_;
  const JobFiles& files_;
  JobTable& jobs_;
  PreparationTurns& turns_;
};

}  // namespace diapason
