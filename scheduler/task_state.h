// What a tuning run knows of one task: its spaces, what was measured, which of it is the best. Not safe from several
// threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/tuner.h"
#include "scheduler/warm_start.h"

namespace diapason {

// A measured candidate of a task.
struct TrialResult {
  int64_t record = 0;  // id in the history
  uint64_t hash = 0;
  int space = -1;  // -1: of a space that this version does not have
  std::vector<int32_t> configuration;
  std::string schedule;  // serialised; what is verified
  std::string sketch;
  double seconds = 0;  // 0: failed
  bool stopped_early = false;
  int samples = 0;  // that `seconds` is the median of
  Verified verified = Verified::kUnknown;
  int verify_attempts = 0;

  bool ran() const { return seconds > 0 && !IsRefuted(verified); }
};

class TaskState {
 public:
  static absl::StatusOr<std::unique_ptr<TaskState>> Create(int id, TuningTask task, const TunerOptions& options);

  // Takes a record of the history: counts it, marks it as known and adds it to `samples` if it says something of a
  // candidate. Returns false for a record that does not count (faults of the infrastructure).
  bool Restore(const TuningRecord& record, std::vector<Sample>* samples);
  // Takes a result of this run. The sample is what the cost model should learn.
  Sample Add(TrialResult result);
  void CountVerifyAttempt(int index) { ++results_[index].verify_attempts; }
  // More samples of results()[index], whose median is now that of so many.
  void SetTime(int index, double seconds, int samples);
  // Takes the verdict on results()[index]; the sample replaces the one of before when it was wrong.
  std::optional<Sample> SetVerdict(int index, bool ok);

  // The search is lent to another thread until EndSearch: results that come meanwhile are kept back from it.
  TaskSearch* BeginSearch();
  void EndSearch();
  void Release(uint64_t hash);
  // The search goes on behind this round, or from what another one has left (TaskSearch). REQUIRES of these and the
  // next: the search is not lent.
  void SkipRounds(int64_t round) { search_->SkipRounds(round); }
  void Remember(const SearchMemory& memory) { search_->Remember(memory); }
  SearchMemory memory() const { return search_->memory(); }
  // A candidate of today's spaces; nothing where these have no such one.
  std::optional<Candidate> Find(const std::string& sketch, const std::vector<int32_t>& configuration) const;
  // Takes it for proposed.
  void Adopt(const Candidate& candidate) { search_->AddProposed(candidate.space, candidate.hash); }

  // Whether a candidate was proposed or measured. REQUIRES: the search is not lent.
  bool Proposed(uint64_t hash) const { return search_->known(hash); }

  TuningRecord RecordOf(const Candidate& candidate, const Schedule& schedule, const std::string& bytes) const;

  int id() const { return id_; }
  const TuningTask& task() const { return task_; }
  double weight() const;
  const TaskSpace& space() const { return *space_; }
  const Candidate& default_candidate() const { return default_; }
  double default_seconds() const { return default_seconds_; }  // 0: not known
  std::shared_ptr<const std::string> workload() const { return workload_; }
  const std::vector<TrialResult>& results() const { return results_; }
  // Index of the fastest that is not refuted, those stopped early behind all others; of those verified only when asked.
  // -1: none.
  int Best(bool verified_only) const { return best_[verified_only ? 1 : 0]; }
  double BestSeconds() const { return best_[0] < 0 ? 0 : results_[best_[0]].seconds; }  // 0: none
  int64_t failed() const { return failed_; }
  double flops() const { return flops_; }
  const TaskShape& shape() const { return shape_; }
  // The fastest candidates, of several sketches if there are.
  std::vector<Tuned> Fastest() const;

 private:
  TaskState() = default;
  void Insert(TrialResult result);
  void FindBest();
  bool Faster(int a, int b) const;
  Sample SampleOf(const TrialResult& result) const;

  int id_ = 0;
  TuningTask task_;
  uint64_t key_ = 0;  // for the cost model
  double flops_ = 0;
  TaskShape shape_;
  std::unique_ptr<TaskSpace> space_;
  std::unique_ptr<TaskSearch> search_;
  std::shared_ptr<const std::string> workload_;
  Candidate default_;
  double default_seconds_ = 0;
  std::vector<TrialResult> results_;
  int best_[2] = {-1, -1};  // of all, of those verified
  int64_t failed_ = 0;
  bool lent_ = false;
  std::vector<int> kept_back_;  // indices of results_
  std::vector<uint64_t> to_release_, to_know_;
};

}  // namespace diapason
