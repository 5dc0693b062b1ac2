#include "scheduler/tuning/contenders.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace diapason::tuning {
namespace {

// Even, so that the median lies between two turns of opposite order.
constexpr int kTurns = 4;

}  // namespace

std::vector<int> ContendersOf(const TrialResults& results, int best, const ContenderOptions& options) {
  std::vector<int> others;
  const double slowest = kContenderRatio * results[best].seconds;
  for (int i = 0; i < static_cast<int>(results.size()) && options.most > 1; ++i) {
    const TrialResult& result = results[i];
    const bool usable = result.verified == Verified::kOk || result.verify_attempts < options.attempts;
    if (i != best && usable && result.ran() && result.seconds <= slowest) others.push_back(i);
  }
  std::stable_sort(others.begin(), others.end(), [&](int a, int b) {
    return std::make_pair(results[a].stopped_early, results[a].seconds) <
           std::make_pair(results[b].stopped_early, results[b].seconds);
  });
  const auto confirmed =
      std::find_if(others.begin(), others.end(), [&](int i) { return results[i].samples > options.confirmed; });
  if (confirmed != others.end()) std::rotate(others.begin(), confirmed, confirmed + 1);
  others.insert(others.begin(), best);
  others.resize(std::min<size_t>(others.size(), std::max(1, options.most)));
  return others;
}

Turns::Turns(std::vector<int> contenders, int samples)
    : contenders_(std::move(contenders)),
      turns_(alone() ? 1 : kTurns),
      samples_(alone() ? samples : samples / 2 + 1),
      taken_(contenders_.size()),
      left_(turns_ * static_cast<int>(contenders_.size())) {
  DIAPASON_CHECK(!contenders_.empty() && samples > 0);
}

std::vector<int> Turns::Order() const {
  std::vector<int> order;
  for (int turn = 0; turn < turns_; ++turn) {
    if (turn % 2 == 0) {
      order.insert(order.end(), contenders_.begin(), contenders_.end());
    } else {
      order.insert(order.end(), contenders_.rbegin(), contenders_.rend());
    }
  }
  return order;
}

void Turns::Add(int contender, const std::vector<double>& samples) {
  const auto place = std::find(contenders_.begin(), contenders_.end(), contender);
  DIAPASON_CHECK(place != contenders_.end() && left_ > 0);
  Taken& taken = taken_[place - contenders_.begin()];
  taken.failed = taken.failed || samples.empty();
  taken.samples.insert(taken.samples.end(), samples.begin(), samples.end());
  --left_;
}

std::vector<double> Turns::SamplesOf(int contender) const {
  const auto place = std::find(contenders_.begin(), contenders_.end(), contender);
  DIAPASON_CHECK(place != contenders_.end());
  const Taken& taken = taken_[place - contenders_.begin()];
  return taken.failed ? std::vector<double>() : taken.samples;
}

}  // namespace diapason::tuning
