// The state of one task of a tuning run: search spaces, search, results. Not thread-safe.
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

  // Adds a record of the history: counts it, marks its candidate as known and, if it can be learned from, adds it to
  // `samples`. Returns false for infrastructure failures, which do not count.
  bool Restore(const TuningRecord& record, std::vector<Sample>* samples);
  // Adds a result of this run. Returns the sample for the cost model.
  Sample Add(TrialResult result);
  void CountVerifyAttempt(int index) { results_.CountVerifyAttempt(index); }
  // Sets the median of results()[index] after it was measured again; `samples` is their total number.
  void SetTime(int index, double seconds, int samples);
  // Sets the verification of results()[index]. If it is wrong, returns the sample that replaces the earlier one.
  std::optional<Sample> SetVerdict(int index, bool ok);

  // The candidate in the current spaces; nothing if they do not contain it.
  std::optional<Candidate> Find(const std::string& sketch, const std::vector<int32_t>& configuration) const;
  // Whether a candidate was proposed or measured. REQUIRES: the search is not lent (LentSearch).
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
