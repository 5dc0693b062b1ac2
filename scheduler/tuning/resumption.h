// Going on where an earlier run was cut off. What it knew is restored in the order in which it learned it; the search
// that was under way begins again with what it knew then; and what was proposed and not measured is measured first. So
// what is proposed is what the run would have proposed had it not been cut off, for the same results in the same order.
//
// With what was not written down there is no such promise: verdicts that came while a search ran count from the
// beginning, and so do records that another run adds for the same workload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/tuning/replays.h"
#include "scheduler/tuning/results.h"
#include "scheduler/tuning/round_notes.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/tuning/trial.h"
#include "scheduler/tuning/warm_starts.h"

namespace diapason::tuning {

class Resumption {
 public:
  using StartSearch = std::function<void(int task, int trials, std::shared_ptr<const Ranker> ranker)>;

  Resumption(const RunContext& context, const RoundNotes& notes, Results& results, Replays& replays, WarmStarts& warm)
      : context_(context), notes_(notes), results_(results), replays_(replays), warm_(warm) {}

  // Counts what the history holds and learns from it; has the search begun again that was under way when an earlier run
  // was cut off, with what it knew then.
  absl::Status Run(const StartSearch& start_search);
  // What an earlier run had proposed and not measured, with its task, in its order.
  std::vector<std::pair<int, Proposal>> TakeUnderWay() { return std::exchange(under_way_, {}); }
  // Whether the cost model is one that may be written to its file.
  bool keeps_model() const { return keeps_model_; }

 private:
  struct Restored {
    int task;
    TuningRecord record;
  };

  // Those of all tasks, in the order in which they were stored; those that are to be replayed are put aside.
  absl::StatusOr<std::vector<Restored>> LoadRecords(int64_t continued_from);
  // A default that was lost is proposed by the search like any other.
  void ReleaseLostDefaults(const std::vector<Restored>& records) const;
  // Of the records, what is to be restored up to an id.
  void RestoreUntil(int64_t id, const std::vector<Restored>& records, size_t* next);
  void LoadModel();

  const RunContext context_;
  const RoundNotes& notes_;
  Results& results_;
  Replays& replays_;
  WarmStarts& warm_;
  int64_t began_ = 0;  // the run that is resumed: Unix nanoseconds
  std::vector<std::pair<int, Proposal>> under_way_;
  bool keeps_model_ = false;
};

}  // namespace diapason::tuning
