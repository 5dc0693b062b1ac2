// What a tuning run knows of one task: its spaces, its search, what was measured of it. Not safe from several
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/lent_search.h"
#include "scheduler/trial_results.h"
#include "scheduler/tuner.h"
#include "scheduler/warm_start.h"

namespace diapason {

class TaskState {
 public:
  static absl::StatusOr<std::unique_ptr<TaskState>> Create(int id, TuningTask task, const TunerOptions& options);

  // Takes a record of the history: counts it, marks it as known and adds it to `samples` if it says something of a
  // candidate. Returns false for a record that does not count (faults of the infrastructure).
  bool Restore(const TuningRecord& record, std::vector<Sample>* samples);
  // Takes a result of this run. The sample is what the cost model should learn.
  Sample Add(TrialResult result);
  void CountVerifyAttempt(int index) { results_.CountVerifyAttempt(index); }
  // More samples of results()[index], whose median is now that of so many.
  void SetTime(int index, double seconds, int samples);
  // Takes the verdict on results()[index]; the sample replaces the one of before when it was wrong.
  std::optional<Sample> SetVerdict(int index, bool ok);

  // A candidate of today's spaces; nothing where these have no such one.
  std::optional<Candidate> Find(const std::string& sketch, const std::vector<int32_t>& configuration) const;
  // Whether a candidate was proposed or measured. REQUIRES: the search is not lent.
  bool Proposed(uint64_t hash) const { return search_->get().known(hash); }

  TuningRecord RecordOf(const Candidate& candidate, const Schedule& schedule, const std::string& bytes) const;

  int id() const { return id_; }
  const TuningTask& task() const { return task_; }
  double weight() const;
  const TaskSpace& space() const { return *space_; }
  const Candidate& default_candidate() const { return default_; }
  double default_seconds() const { return default_seconds_; }  // 0: not known
  std::shared_ptr<const std::string> workload() const { return workload_; }
  const TrialResults& results() const { return results_; }
  LentSearch& search() { return *search_; }
  double flops() const { return flops_; }
  const TaskShape& shape() const { return shape_; }

 private:
  TaskState() = default;
  Sample SampleOf(const TrialResult& result) const;

  int id_ = 0;
  TuningTask task_;
  uint64_t key_ = 0;  // for the cost model
  double flops_ = 0;
  TaskShape shape_;
  std::unique_ptr<TaskSpace> space_;
  std::shared_ptr<const std::string> workload_;
  Candidate default_;
  double default_seconds_ = 0;
  TrialResults results_;
  std::unique_ptr<LentSearch> search_;
};

}  // namespace diapason
