#include "scheduler/search/round_selector.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/types/span.h"

namespace diapason {
namespace {

// Of a round, at most one place in this many goes to spaces that were hardly measured.
constexpr int kFloorShare = 3;
// Picks of a round that may differ from each other in one parameter only.
constexpr int kNeighbours = 3;
// A sample that the estimate takes for so much slower than the fastest candidate is not drawn: a kernel of seconds
// holds up the device and teaches nothing of fast ones.
constexpr double kFarOff = 256;

bool DifferInMore(absl::Span<const int32_t> a, absl::Span<const int32_t> b, int at_most) {
  int differences = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && ++differences > at_most) return true;
  return false;
}

}  // namespace

RoundSelector::RoundSelector(const SearchRound& round, const Population& population, const PopulationOrigins& origins,
                             const Proposals& proposals)
    : round_(round), population_(population), origins_(origins), proposals_(proposals) {
  for (int i = 0; i < population.size(); ++i)
    if (std::isfinite(population.score(i)) && !proposals.contains(population.hash(i))) open_.push_back(i);
}

std::vector<int> RoundSelector::Select(int count) {
  const EvolutionOptions& options = round_.options;
  const auto places = static_cast<size_t>(count);
  // At most half of a round, so that the search goes on beside them.
  const size_t known_places = std::max<size_t>(1, places / 2);
  TakePriors(known_places);
  TakeSuggested(known_places);
  TakeClaims(std::min(places, taken_.size() + std::max<size_t>(1, places / kFloorShare)));
  TakeMutants(places);
  const auto randoms = static_cast<size_t>(std::max(0.0, std::ceil(options.epsilon * count - 0.5)));
  const size_t guided = places - std::min(randoms, places);
  const auto hopeful =
      static_cast<size_t>(options.hopeful * static_cast<double>(guided - std::min(guided, taken_.size())));
  TakeBest(guided - hopeful);
  TakeHopeful(guided);
  TakeRandom(places);
  TakeBest(places);
  return taken_in_order_;
}

void RoundSelector::Take(int i) {
  taken_.insert(i);
  taken_in_order_.push_back(i);
}

bool RoundSelector::Better(int a, int b) const {
  if (population_.score(a) != population_.score(b)) return population_.score(a) > population_.score(b);
  return population_.hash(a) < population_.hash(b);
}

std::vector<int> RoundSelector::BestFirst(std::vector<int> candidates, size_t count) const {
  count = std::min(candidates.size(), count);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                    [this](int a, int b) { return Better(a, b); });
  candidates.resize(count);
  return candidates;
}

bool RoundSelector::IsCrowded(int i) const {
  const auto near = [&](int taken) {
    return population_.space(taken) == population_.space(i) &&
           !DifferInMore(population_.configuration(taken), population_.configuration(i), 1);
  };
  return std::count_if(taken_in_order_.begin(), taken_in_order_.end(), near) >= kNeighbours;
}

void RoundSelector::TakePriors(size_t places) {
  for (int i : open_) {
    if (i >= origins_.end_priors || taken_.size() >= places) return;
    Take(i);
  }
}

void RoundSelector::TakeSuggested(size_t places) {
  for (int i : open_) {
    if (taken_.size() >= places) return;
    if (origins_.suggested.contains(population_.hash(i)) && !IsTaken(i)) Take(i);
  }
}

void RoundSelector::TakeClaims(size_t places) {
  std::vector<int> champion(round_.spaces.size(), -1), claims;
  for (int i : open_)
    if (int& best = champion[population_.space(i)]; best < 0 || Better(i, best)) best = i;
  for (int space = 0; space < round_.spaces.size(); ++space)
    if (champion[space] >= 0 && proposals_.trials(space) < round_.options.floor_measurements)
      claims.push_back(champion[space]);
  std::sort(claims.begin(), claims.end(), [this](int a, int b) { return Better(a, b); });
  for (size_t i = 0; i < claims.size() && taken_.size() < places; ++i)
    if (!IsTaken(claims[i])) Take(claims[i]);
}

void RoundSelector::TakeMutants(size_t places) {
  for (int i : open_)
    if (i >= origins_.begin_mutants && taken_.size() < places && !IsTaken(i)) Take(i);
}

void RoundSelector::TakeBest(size_t places) {
  std::vector<int> skipped;
  for (int i : BestFirst(open_, 8 * places)) {
    if (taken_.size() >= places) return;
    if (IsTaken(i)) continue;
    if (IsCrowded(i)) {
      skipped.push_back(i);
    } else {
      Take(i);
    }
  }
  for (size_t j = 0; j < skipped.size() && taken_.size() < places; ++j) Take(skipped[j]);
}

void RoundSelector::TakeHopeful(size_t places) {
  if (taken_.size() >= places) return;
  const size_t spaces = round_.spaces.size();
  std::vector<std::vector<int>> of_space(spaces);
  std::vector<size_t> next(spaces);
  std::vector<int> trials(spaces);
  for (int i : open_)
    if (!IsTaken(i)) of_space[population_.space(i)].push_back(i);
  for (size_t s = 0; s < spaces; ++s) {
    of_space[s] = BestFirst(std::move(of_space[s]), 4 * places);
    trials[s] = proposals_.trials(static_cast<int>(s));
  }
  for (int i : taken_in_order_) ++trials[population_.space(i)];
  while (taken_.size() < places) {
    int best = -1;
    double best_score = 0;
    for (size_t s = 0; s < spaces; ++s) {
      while (next[s] < of_space[s].size() && IsCrowded(of_space[s][next[s]])) ++next[s];
      if (next[s] == of_space[s].size()) continue;
      const double score = population_.score(of_space[s][next[s]]) + StillToCome(trials[s]);
      if (best >= 0 && score <= best_score) continue;
      best = static_cast<int>(s);
      best_score = score;
    }
    if (best < 0) return;
    Take(of_space[best][next[best]++]);
    ++trials[best];
  }
}

void RoundSelector::TakeRandom(size_t places) {
  double least = std::numeric_limits<double>::infinity();
  for (int i : open_) least = std::min(least, population_.analytic_seconds(i));
  std::vector<int> samples;
  for (int i : open_)
    if (i < origins_.end_first_generation && !IsTaken(i) && population_.analytic_seconds(i) <= kFarOff * least)
      samples.push_back(i);
  Random random = round_.Stream(0, uint64_t{1} << 40);
  while (taken_.size() < places && !samples.empty()) {
    const auto at = random.Below(static_cast<uint32_t>(samples.size()));
    Take(samples[at]);
    samples[at] = samples.back();
    samples.pop_back();
  }
}

}  // namespace diapason
