#include "scheduler/search/ranking.h"

#include <algorithm>
#include <utility>

namespace diapason {
namespace {

// Tries of a failing space before it only gets a token share of the samples.
constexpr int kFailuresToGiveUp = 8;

}  // namespace

bool SpaceResults::gives_up() const { return best_seconds == 0 && failed >= kFailuresToGiveUp; }

void Ranking::Add(MeasuredCandidate candidate) {
  const uint64_t hash = candidate.hash;
  measured_[hash] = std::move(candidate);
  is_old_ = true;
}

void Ranking::Update() {
  if (!is_old_) return;
  is_old_ = false;
  fastest_.clear();
  std::fill(spaces_.begin(), spaces_.end(), SpaceResults());
  for (const auto& [hash, measured] : measured_) {
    if (measured.seconds <= 0) {
      ++spaces_[measured.space].failed;
    } else {
      fastest_.push_back(&measured);
    }
  }
  std::sort(fastest_.begin(), fastest_.end(), [](const MeasuredCandidate* a, const MeasuredCandidate* b) {
    return std::make_pair(a->seconds, a->hash) < std::make_pair(b->seconds, b->hash);
  });
  for (const MeasuredCandidate* measured : fastest_) {
    SpaceResults& space = spaces_[measured->space];
    if (space.best.empty()) space.best_seconds = measured->seconds;
    if (space.best.size() < kBestOfSpace) space.best.push_back(measured);
  }
}

std::vector<double> Ranking::SampleShares() const {
  std::vector<double> shares(spaces_.size());
  double sum = 0;
  for (size_t i = 0; i < spaces_.size(); ++i) {
    const SpaceResults& space = spaces_[i];
    double merit = 1;
    if (space.best_seconds > 0) merit = best_seconds() / space.best_seconds;
    if (space.gives_up()) merit = 0.05;
    sum += shares[i] = merit * merit;
  }
  const double even = 1.0 / static_cast<double>(shares.size());
  for (size_t i = 0; i < shares.size(); ++i)
    shares[i] = 2.0 / 3 * shares[i] / sum + (spaces_[i].gives_up() ? 0.02 : 1.0 / 3) * even;
  return shares;
}

}  // namespace diapason
