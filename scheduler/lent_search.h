// The search of a task, which another thread has for the time of a round.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/evolution.h"
#include "scheduler/trial_results.h"

namespace diapason {

// Not safe from several threads: the search that is lent is used by the other thread, and all calls come from this one.
// What the search is to learn meanwhile is kept back until it returns.
class LentSearch {
 public:
  // `results` must outlive this.
  LentSearch(std::unique_ptr<TaskSearch> search, const TrialResults& results);

  // Lends the search until End. REQUIRES: it is not lent.
  TaskSearch* Begin();
  void End();
  // REQUIRES: it is not lent.
  TaskSearch& get() { return *search_; }
  const TaskSearch& get() const { return *search_; }

  // As those of TaskSearch, at once or when the search returns. AddMeasured: with what is known of that result by then.
  void AddMeasured(int index);
  void AddKnown(uint64_t hash);
  void Release(uint64_t hash);

 private:
  void Learn(int index);

  const std::unique_ptr<TaskSearch> search_;
  const TrialResults& results_;
  bool lent_ = false;
  std::vector<int> measured_;  // indices of results_
  std::vector<uint64_t> to_release_, to_know_;
};

}  // namespace diapason
