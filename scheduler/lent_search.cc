#include "scheduler/lent_search.h"

#include <utility>

#include "base/check.h"

namespace diapason {

LentSearch::LentSearch(std::unique_ptr<TaskSearch> search, const TrialResults& results)
    : search_(std::move(search)), results_(results) {}

TaskSearch* LentSearch::Begin() {
  DIAPASON_CHECK(!lent_);
  lent_ = true;
  return search_.get();
}

void LentSearch::End() {
  lent_ = false;
  for (int index : measured_) Learn(index);
  for (uint64_t hash : to_release_) search_->Release(hash);
  for (uint64_t hash : to_know_) search_->AddKnown(hash);
  measured_.clear();
  to_release_.clear();
  to_know_.clear();
}

void LentSearch::Learn(int index) {
  const TrialResult& result = results_[index];
  search_->AddMeasured(result.space, result.configuration, result.ran() ? result.seconds : 0);
}

void LentSearch::AddMeasured(int index) {
  if (lent_) {
    measured_.push_back(index);
  } else {
    Learn(index);
  }
}

void LentSearch::AddKnown(uint64_t hash) {
  if (lent_) {
    to_know_.push_back(hash);
  } else {
    search_->AddKnown(hash);
  }
}

void LentSearch::Release(uint64_t hash) {
  if (lent_) {
    to_release_.push_back(hash);
  } else {
    search_->Release(hash);
  }
}

}  // namespace diapason
