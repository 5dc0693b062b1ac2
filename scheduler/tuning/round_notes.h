// What a run has proposed and not all measured yet, kept in TunerOptions::rounds for a run that resumes.
// Without such a file nothing is noted.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/rounds.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/tuning/trial.h"

namespace diapason::tuning {

class RoundNotes {
 public:
  // What an earlier run has left.
  struct UnderWay {
    std::vector<std::pair<int, Proposal>> proposals;  // with their tasks, in the order in which they were made
    std::optional<BegunSearch> begun;
    int begun_task = -1;
  };
  // A record's task and configuration.
  using Measured = std::pair<int, uint64_t>;

  explicit RoundNotes(const RunContext& context) : context_(context) {}

  // When the run of this name began: Unix nanoseconds; the end of time without a file.
  absl::StatusOr<int64_t> Began() const;
  // Searches resume behind their last rounds. What is `measured` is not under way.
  absl::StatusOr<UnderWay> Load(const std::vector<Measured>& measured) const;
  // Each before what it tells of is begun.
  absl::Status NoteDefault(int task, const std::vector<Proposal>& proposals) const;
  absl::Status NoteBegun(int task, int trials, int64_t known, int64_t trained) const;
  absl::Status NoteRound(const SearchDone& done) const;
  // The run has come to its end: what it did not measure is of no interest.
  absl::Status Forget() const;

 private:
  // The task that is tuned here; -1: none.
  int TaskOf(const std::string& workload_key, const std::string& target, const std::string& device_model) const;
  std::vector<ProposedTrial> Noted(int task, int64_t round, const std::vector<Proposal>& proposals) const;

  const RunContext context_;
};

}  // namespace diapason::tuning
