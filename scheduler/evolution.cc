#include "scheduler/evolution.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "scheduler/parallel.h"
#include "scheduler/population.h"
#include "scheduler/variation.h"

namespace diapason {
namespace {

// Slots that one thread fills at a time.
constexpr int kChunk = 128;
// A space that keeps giving what was seen before is listed whole if it has at most this many candidates.
constexpr int kEnumerationLimit = 4096;
// Of a round, at most one place in this many goes to spaces that were hardly measured.
constexpr int kFloorShare = 3;
// Tries of a failing space before it only gets a token share of the samples.
constexpr int kFailuresToGiveUp = 8;
// The unguided part of a round changes one of so many best measured candidates, or of so many of one space.
constexpr uint32_t kParents = 8, kParentsOfSpace = 3;
// Picks of a round that may differ from each other in one hole only.
constexpr int kNeighbours = 3;
// What is still to come of a space after n measurements, at best, as the logarithm of speed: log(1 + kOptimism /
// sqrt(n)). Of the spaces of an H200's histories that were measured a hundred times and more, one in four came that far
// after 4, 8 and 16, fewer before, more after 64.
constexpr double kOptimism = 0.5;

// What is known of one space.
struct SpaceState {
  int measured = 0;  // proposed ones included
  int failed = 0;
  double best_seconds = 0;  // 0: none ran
  std::vector<int> best;    // its fastest, up to kParentsOfSpace of them: places in the ranking
  bool listed = false;      // `all` holds every candidate
  bool large = false;       // more than kEnumerationLimit
  std::vector<int32_t> all;
};

struct Measured {
  int space;
  std::vector<int32_t> configuration;
  double seconds;  // 0: fails
  uint64_t hash;
};

struct Sampled {
  int space;
  std::vector<int32_t> configuration;
};

// Candidates of the population that go into the round, in order.
class Picks {
 public:
  void Take(int i) {
    taken_.insert(i);
    picks_.push_back(i);
  }
  bool has(int i) const { return taken_.contains(i); }
  size_t size() const { return picks_.size(); }
  const std::vector<int>& all() const { return picks_; }

 private:
  std::vector<int> picks_;
  absl::flat_hash_set<int> taken_;
};

double StillToCome(int measured) { return std::log1p(kOptimism / std::sqrt(std::max(1, measured))); }

bool Differ(absl::Span<const int32_t> a, absl::Span<const int32_t> b, int at_most) {
  int differences = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && ++differences > at_most) return true;
  return false;
}

}  // namespace

class TaskSearch::Impl {
 public:
  Impl(const TaskSpace* space, uint64_t task, EvolutionOptions options)
      : space_(space), task_(task), options_(options), states_(space->size()), population_(space) {
    // A space may search a little for its default: asked once.
    for (int i = 0; i < space->size(); ++i) defaults_.push_back(space->space(i).Default());
    // In turns: the first of each space before the second of any.
    std::vector<std::vector<std::vector<int32_t>>> priors;
    size_t most = 0;
    for (int i = 0; i < space->size(); ++i) {
      priors.push_back(space->space(i).Priors());
      most = std::max(most, priors.back().size());
    }
    for (size_t turn = 0; turn < most; ++turn)
      for (int i = 0; i < space->size(); ++i)
        if (turn < priors[i].size()) priors_.push_back({i, std::move(priors[i][turn])});
  }

  std::vector<Candidate> NextRound(const Ranker* ranker, int k, const std::vector<Suggestion>& suggested);
  Candidate Default();

  void AddMeasured(int space, absl::Span<const int32_t> configuration, double seconds) {
    const uint64_t hash = CandidateHash(space_->space(space).name(), configuration);
    if (proposed_.insert(hash).second) ++states_[space].measured;
    Measured measured{space, {configuration.begin(), configuration.end()}, seconds, hash};
    measured_[hash] = std::move(measured);
    summary_is_old_ = true;
  }
  void AddKnown(uint64_t hash) { proposed_.insert(hash); }
  void AddProposed(int space, uint64_t hash) {
    if (!proposed_.insert(hash).second) return;
    pending_space_[hash] = space;
    ++states_[space].measured;
  }
  void Release(uint64_t hash) {
    if (proposed_.erase(hash) == 0) return;
    const auto found = pending_space_.find(hash);
    if (found != pending_space_.end()) --states_[found->second].measured;
  }
  SearchMemory memory() const;
  void Remember(const SearchMemory& memory);
  uint64_t rounds() const { return round_; }
  void SkipRounds(uint64_t until) { round_ = std::max(round_, until); }
  bool known(uint64_t hash) const { return proposed_.contains(hash); }
  const SearchStats& stats() const { return stats_; }

 private:
  void Summarise();
  std::vector<double> Shares() const;
  void First(const Ranker* ranker);
  void Append(int space, absl::Span<const int32_t> configuration);
  void AddSamples(const Ranker* ranker);
  void Next(int generation, const Ranker* ranker);
  void ListIfSmall(int space);
  void Evolve(const Ranker* ranker, int k);
  Candidate Propose(int i, const Ranker* ranker);
  bool Better(int a, int b) const;
  void TakePriors(size_t places, Picks* picks) const;
  void TakeSuggested(const std::vector<int>& open, size_t places, Picks* picks) const;
  std::vector<int> Claims(const std::vector<int>& open) const;
  std::vector<int> BestFirst(std::vector<int> candidates, size_t count) const;
  bool IsCrowded(int i, const Picks& picks) const;
  void TakeBest(const std::vector<int>& open, size_t places, Picks* picks) const;
  void TakeHopeful(const std::vector<int>& open, size_t places, Picks* picks) const;
  void TakeRandom(const std::vector<int>& open, size_t places, Picks* picks) const;
  std::vector<int> Pick(int k) const;
  const Measured& ParentElsewhere(Random* random) const;
  void AddUnguided(int count, const Ranker* ranker);

  const TaskSpace* const space_;
  const uint64_t task_;
  const EvolutionOptions options_;
  std::vector<SpaceState> states_;
  std::vector<std::vector<int32_t>> defaults_;        // of each space
  std::vector<Sampled> priors_;                       // to be measured in any case, in that order
  std::vector<Suggestion> suggested_;                 // of this round
  absl::flat_hash_set<uint64_t> suggested_hashes_;    // of these
  absl::flat_hash_set<uint64_t> proposed_;            // never again
  absl::flat_hash_map<uint64_t, int> pending_space_;  // of each proposed one
  std::map<uint64_t, Measured> measured_;             // by hash: the order of arrival does not matter
  std::vector<const Measured*> ranking_;              // of measured_: what ran, the fastest first
  bool summary_is_old_ = false;
  std::deque<Sampled> samples_;  // of the last rounds, the oldest first
  double best_seconds_ = 0;
  uint64_t round_ = 0;
  int first_prior_ = 0, end_prior_ = 0;  // priors in population_ that were not proposed yet
  int first_generation_ = 0;             // candidates of population_ that were sampled, not bred
  int first_unguided_ = 0;               // from here on: those of AddUnguided
  Population population_;
  SearchStats stats_;
};

void TaskSearch::Impl::Summarise() {
  if (!summary_is_old_) return;
  summary_is_old_ = false;
  ranking_.clear();
  for (SpaceState& state : states_) state.failed = 0, state.best_seconds = 0, state.best.clear();
  for (const auto& [hash, measured] : measured_) {
    SpaceState& state = states_[measured.space];
    if (measured.seconds <= 0) {
      ++state.failed;
      continue;
    }
    ranking_.push_back(&measured);
    if (state.best_seconds == 0 || measured.seconds < state.best_seconds) state.best_seconds = measured.seconds;
  }
  std::sort(ranking_.begin(), ranking_.end(), [](const Measured* a, const Measured* b) {
    return std::make_pair(a->seconds, a->hash) < std::make_pair(b->seconds, b->hash);
  });
  for (size_t i = 0; i < ranking_.size(); ++i)
    if (SpaceState& state = states_[ranking_[i]->space]; state.best.size() < kParentsOfSpace)
      state.best.push_back(static_cast<int>(i));
  best_seconds_ = ranking_.empty() ? 0 : ranking_.front()->seconds;
}

// Share of the samples of each space: a third is dealt out evenly, the rest by how near the best of the space comes to
// the best of the task (squared). A space that was not measured counts as the best one would.
std::vector<double> TaskSearch::Impl::Shares() const {
  std::vector<double> shares(states_.size());
  double sum = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const SpaceState& state = states_[i];
    double merit = 1;
    if (state.best_seconds > 0) merit = best_seconds_ / state.best_seconds;
    if (state.best_seconds == 0 && state.failed >= kFailuresToGiveUp) merit = 0.05;
    sum += shares[i] = merit * merit;
  }
  const double even = 1.0 / static_cast<double>(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    const bool fails = states_[i].best_seconds == 0 && states_[i].failed >= kFailuresToGiveUp;
    shares[i] = 2.0 / 3 * shares[i] / sum + (fails ? 0.02 : 1.0 / 3) * even;
  }
  return shares;
}

// The first generation: what is suggested, defaults, the best measured ones, all of the small spaces, samples of the
// others. Drawing a sample costs several times as much as a mutation, so most samples are those of the rounds before.
void TaskSearch::Impl::First(const Ranker* ranker) {
  population_.Clear();
  first_prior_ = population_.size();
  for (const Sampled& one : priors_)
    if (!proposed_.contains(CandidateHash(space_->space(one.space).name(), one.configuration)))
      Append(one.space, one.configuration);
  end_prior_ = population_.size();
  suggested_hashes_.clear();
  for (const Suggestion& one : suggested_) {
    suggested_hashes_.insert(CandidateHash(space_->space(one.space).name(), one.configuration));
    Append(one.space, one.configuration);
  }
  for (int i = 0; i < space_->size(); ++i) Append(i, defaults_[i]);
  const int seeds =
      std::min(static_cast<int>(ranking_.size()), static_cast<int>(options_.population * options_.measured_share));
  for (int i = 0; i < seeds; ++i) Append(ranking_[i]->space, ranking_[i]->configuration);
  for (int i = 0; i < space_->size(); ++i) {
    if (!states_[i].listed) continue;
    const size_t holes = static_cast<size_t>(space_->space(i).size());
    const size_t count = holes == 0 ? 1 : states_[i].all.size() / holes;
    for (size_t j = 0; j < count; ++j) Append(i, absl::MakeConstSpan(states_[i].all).subspan(j * holes, holes));
  }
  for (const Sampled& sample : samples_) Append(sample.space, sample.configuration);
  population_.Evaluate(0, ranker, task_, options_.threads);
  AddSamples(ranker);
  first_generation_ = population_.size();
}

void TaskSearch::Impl::Append(int space, absl::Span<const int32_t> configuration) {
  population_.Extend(1);
  population_.Set(population_.size() - 1, space, configuration);
}

// New samples of all spaces that are not listed, kept for later rounds too.
void TaskSearch::Impl::AddSamples(const Ranker* ranker) {
  const std::vector<double> shares = Shares();
  const int wanted = options_.population / (samples_.empty() ? 1 : 4);
  std::vector<int> sampled(states_.size()), space_of;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].listed) continue;
    sampled[i] = std::max(8, static_cast<int>(shares[i] * wanted));
    space_of.insert(space_of.end(), sampled[i], static_cast<int>(i));
  }
  const int first = population_.size(), count = static_cast<int>(space_of.size());
  population_.Extend(count);
  ParallelFor(options_.threads, (count + kChunk - 1) / kChunk, [&](int chunk) {
    std::vector<int32_t> values, configuration;
    for (int i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      Random random(options_.seed, task_, round_ << 8, i);
      const Space& space = space_->space(space_of[i]);
      configuration.resize(space.size());
      SampleConfiguration(space, &random, absl::MakeSpan(configuration), &values);
      population_.Set(first + i, space_of[i], configuration);
    }
  });
  stats_.sampled += count;
  population_.Evaluate(first, ranker, task_, options_.threads);
  stats_.evaluated += population_.size() - first;

  std::vector<int> fresh(states_.size());
  for (int i = first; i < population_.size(); ++i) {
    ++fresh[population_.space(i)];
    samples_.push_back(
        {population_.space(i), {population_.configuration(i).begin(), population_.configuration(i).end()}});
  }
  while (static_cast<int>(samples_.size()) > options_.population) samples_.pop_front();
  // A space of which fewer than half of the samples were new is small, or nearly so.
  for (size_t i = 0; i < states_.size(); ++i)
    if (fresh[i] * 2 <= sampled[i]) ListIfSmall(static_cast<int>(i));
}

void TaskSearch::Impl::ListIfSmall(int space) {
  SpaceState& state = states_[space];
  if (state.listed || state.large) return;
  state.listed = Enumerate(space_->space(space), kEnumerationLimit, &state.all);
  state.large = !state.listed;
}

// One generation: children of all candidates so far, drawn by their scores.
void TaskSearch::Impl::Next(int generation, const Ranker* ranker) {
  const int parents = population_.size();
  std::vector<double> cumulative(parents);
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int i = 0; i < parents; ++i) best = std::max(best, population_.score(i));
  if (!std::isfinite(best)) return;
  // Scores are logarithms of speed: a candidate half as fast as the best one has a quarter of its chances.
  for (int i = 0; i < parents; ++i) cumulative[i] = sum += std::exp(2 * (population_.score(i) - best));
  const auto draw = [&](Random* random) {
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), random->Uniform() * sum);
    return std::min(parents - 1, static_cast<int>(found - cumulative.begin()));
  };
  const int base = population_.size(), count = options_.population;
  population_.Extend(count);
  ParallelFor(options_.threads, (count + kChunk - 1) / kChunk, [&](int chunk) {
    std::vector<int32_t> values, child;
    for (int i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      Random random(options_.seed, task_, (round_ << 8) + static_cast<uint64_t>(generation), i);
      const int parent = draw(&random);
      const Space& space = space_->space(population_.space(parent));
      child.assign(population_.configuration(parent).begin(), population_.configuration(parent).end());
      const int other = draw(&random);
      if (random.Uniform() >= options_.mutation && population_.space(other) == population_.space(parent) &&
          other != parent)
        Crossover(space, &random, population_.configuration(other), absl::MakeSpan(child));
      else if (!Mutate(space, &random, absl::MakeSpan(child), &values))
        continue;
      population_.Set(base + i, population_.space(parent), child);
    }
  });
  stats_.sampled += count;
  population_.Evaluate(base, ranker, task_, options_.threads);
  stats_.evaluated += population_.size() - base;
}

// One of the best of a space that is drawn by how near its best comes to the best of the task, with what is still to
// come of it: one half as fast has a sixteenth of the chances.
const Measured& TaskSearch::Impl::ParentElsewhere(Random* random) const {
  auto chances = [&](const SpaceState& state) {
    return state.best.empty() ? 0.0
                              : std::pow(best_seconds_ / state.best_seconds * std::exp(StillToCome(state.measured)), 4);
  };
  double sum = 0;
  for (const SpaceState& state : states_) sum += chances(state);
  double left = random->Uniform() * sum;
  const SpaceState* drawn = nullptr;
  for (const SpaceState& state : states_) {
    if (state.best.empty()) continue;
    drawn = &state;
    if ((left -= chances(state)) < 0) break;
  }
  return *ranking_[drawn->best[random->Below(static_cast<uint32_t>(drawn->best.size()))]];
}

// Changes of the best measured candidates in one hole or two, whatever the model thinks of them: a model that is
// trained on what it chose itself never learns that it is wrong elsewhere. Every second one is of a space by itself,
// since the best of all are soon of one space, and what another space could do with more trials is never seen.
void TaskSearch::Impl::AddUnguided(int count, const Ranker* ranker) {
  first_unguided_ = population_.size();
  if (ranking_.empty()) return;
  Random random(options_.seed, task_, round_ << 8, uint64_t{1} << 41);
  population_.Extend(count);
  std::vector<int32_t> values, child;
  const auto parents = std::min(kParents, static_cast<uint32_t>(ranking_.size()));
  for (int i = 0; i < count; ++i) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Measured& parent = i % 2 == 1 ? ParentElsewhere(&random) : *ranking_[random.Below(parents)];
      const Space& space = space_->space(parent.space);
      child = parent.configuration;
      for (uint32_t changes = 1 + random.Below(2); changes > 0; --changes)
        Mutate(space, &random, absl::MakeSpan(child), &values);
      if (proposed_.contains(CandidateHash(space.name(), child))) continue;
      population_.Set(first_unguided_ + i, parent.space, child);
      break;
    }
  }
  stats_.sampled += count;
  population_.Evaluate(first_unguided_, ranker, task_, options_.threads);
  stats_.evaluated += population_.size() - first_unguided_;
}

// Whether candidate a goes before b.
bool TaskSearch::Impl::Better(int a, int b) const {
  if (population_.score(a) != population_.score(b)) return population_.score(a) > population_.score(b);
  return population_.hash(a) < population_.hash(b);
}

// Priors, before the model has a say. At most half of a round, so that the search goes on beside them.
void TaskSearch::Impl::TakePriors(size_t places, Picks* picks) const {
  for (int i = first_prior_; i < end_prior_ && picks->size() < std::max<size_t>(1, places / 2); ++i)
    if (std::isfinite(population_.score(i))) picks->Take(i);
}

// What was found for similar tasks, in the order of the suggestions. At most half of a round, priors included.
void TaskSearch::Impl::TakeSuggested(const std::vector<int>& open, size_t places, Picks* picks) const {
  for (int i : open) {
    if (picks->size() >= std::max<size_t>(1, places / 2)) return;
    if (suggested_hashes_.contains(population_.hash(i)) && !picks->has(i)) picks->Take(i);
  }
}

// The best candidate of each space that was hardly measured, the best first.
std::vector<int> TaskSearch::Impl::Claims(const std::vector<int>& open) const {
  std::vector<int> champion(states_.size(), -1), claims;
  for (int i : open)
    if (int& best = champion[population_.space(i)]; best < 0 || Better(i, best)) best = i;
  for (size_t i = 0; i < states_.size(); ++i)
    if (champion[i] >= 0 && states_[i].measured < options_.floor_measurements) claims.push_back(champion[i]);
  std::sort(claims.begin(), claims.end(), [this](int a, int b) { return Better(a, b); });
  return claims;
}

// Up to `count` of the candidates, sorted.
std::vector<int> TaskSearch::Impl::BestFirst(std::vector<int> candidates, size_t count) const {
  count = std::min(candidates.size(), count);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                    [this](int a, int b) { return Better(a, b); });
  candidates.resize(count);
  return candidates;
}

// Whether there are several near-identical ones among the picks.
bool TaskSearch::Impl::IsCrowded(int i, const Picks& picks) const {
  const auto near = [&](int pick) {
    return population_.space(pick) == population_.space(i) &&
           !Differ(population_.configuration(pick), population_.configuration(i), 1);
  };
  return std::count_if(picks.all().begin(), picks.all().end(), near) >= kNeighbours;
}

// Fills up to `places` with the best by score, crowded ones last.
void TaskSearch::Impl::TakeBest(const std::vector<int>& open, size_t places, Picks* picks) const {
  std::vector<int> skipped;
  for (int i : BestFirst(open, 8 * places)) {
    if (picks->size() >= places) return;
    if (picks->has(i)) continue;
    if (IsCrowded(i, *picks)) {
      skipped.push_back(i);
    } else {
      picks->Take(i);
    }
  }
  for (size_t j = 0; j < skipped.size() && picks->size() < places; ++j) picks->Take(skipped[j]);
}

// Fills up to `places` with the best by score and what is still to come of their spaces: the model ranks within a
// space, and the space that leads does not get all trials before others had as many as their distance is worth.
// (Optimism in the face of uncertainty: Lai and Robbins 1985; UCB1, Auer et al. 2002.) Leaves crowded ones out.
void TaskSearch::Impl::TakeHopeful(const std::vector<int>& open, size_t places, Picks* picks) const {
  if (picks->size() >= places) return;
  std::vector<std::vector<int>> of_space(states_.size());
  std::vector<size_t> next(states_.size());
  std::vector<int> measured(states_.size());
  for (int i : open)
    if (!picks->has(i)) of_space[population_.space(i)].push_back(i);
  for (size_t s = 0; s < states_.size(); ++s) {
    of_space[s] = BestFirst(std::move(of_space[s]), 4 * places);
    measured[s] = states_[s].measured;
  }
  for (int pick : picks->all()) ++measured[population_.space(pick)];
  while (picks->size() < places) {
    int best = -1;
    double best_score = 0;
    for (size_t s = 0; s < states_.size(); ++s) {
      while (next[s] < of_space[s].size() && IsCrowded(of_space[s][next[s]], *picks)) ++next[s];
      if (next[s] == of_space[s].size()) continue;
      const double score = population_.score(of_space[s][next[s]]) + StillToCome(measured[s]);
      if (best >= 0 && score <= best_score) continue;
      best = static_cast<int>(s);
      best_score = score;
    }
    if (best < 0) return;
    picks->Take(of_space[best][next[best]++]);
    ++measured[best];
  }
}

// Fills up to `places` with samples drawn at random.
void TaskSearch::Impl::TakeRandom(const std::vector<int>& open, size_t places, Picks* picks) const {
  std::vector<int> samples;
  for (int i : open)
    if (i < first_generation_ && !picks->has(i)) samples.push_back(i);
  Random random(options_.seed, task_, round_ << 8, uint64_t{1} << 40);
  while (picks->size() < places && !samples.empty()) {
    const auto at = random.Below(static_cast<uint32_t>(samples.size()));
    picks->Take(samples[at]);
    samples[at] = samples.back();
    samples.pop_back();
  }
}

// Indices to propose, in the order of proposal.
std::vector<int> TaskSearch::Impl::Pick(int k) const {
  std::vector<int> open;
  for (int i = 0; i < population_.size(); ++i)
    if (std::isfinite(population_.score(i)) && !proposed_.contains(population_.hash(i))) open.push_back(i);
  const auto places = static_cast<size_t>(k);
  Picks picks;
  TakePriors(places, &picks);
  TakeSuggested(open, places, &picks);
  const std::vector<int> claims = Claims(open);
  const size_t claimed = std::min(places, picks.size() + std::max<size_t>(1, places / kFloorShare));
  for (size_t i = 0; i < claims.size() && picks.size() < claimed; ++i)
    if (!picks.has(claims[i])) picks.Take(claims[i]);
  for (int i : open)
    if (i >= first_unguided_ && picks.size() < places && !picks.has(i)) picks.Take(i);
  const auto randoms = static_cast<size_t>(std::max(0.0, std::ceil(options_.epsilon * k - 0.5)));
  const size_t guided = places - std::min(randoms, places);
  const auto hopeful =
      static_cast<size_t>(options_.hopeful * static_cast<double>(guided - std::min(guided, picks.size())));
  TakeBest(open, guided - hopeful, &picks);
  TakeHopeful(open, guided, &picks);
  TakeRandom(open, places, &picks);
  TakeBest(open, places, &picks);
  return picks.all();
}

Candidate TaskSearch::Impl::Propose(int i, const Ranker* ranker) {
  const int space = population_.space(i);
  Candidate candidate{space,
                      {population_.configuration(i).begin(), population_.configuration(i).end()},
                      population_.hash(i),
                      population_.analytic_seconds(i),
                      population_.analytic_seconds(i)};
  if (ranker != nullptr && best_seconds_ > 0)
    candidate.predicted_seconds = best_seconds_ * std::exp(-population_.score(i));
  proposed_.insert(candidate.hash);
  pending_space_[candidate.hash] = space;
  ++states_[space].measured;
  return candidate;
}

void TaskSearch::Impl::Evolve(const Ranker* ranker, int k) {
  First(ranker);
  for (int generation = 1; generation <= options_.iterations; ++generation) Next(generation, ranker);
  bool hopeful = ranker == nullptr;
  for (int i = 0; i < population_.size() && !hopeful; ++i)
    hopeful = population_.score(i) > 0 && !proposed_.contains(population_.hash(i));
  const double share = (hopeful ? 1 : 3) * options_.unguided;
  AddUnguided(std::min(k, static_cast<int>(std::ceil(share * k - 0.5))), ranker);
}

std::vector<Candidate> TaskSearch::Impl::NextRound(const Ranker* ranker, int k,
                                                   const std::vector<Suggestion>& suggested) {
  DIAPASON_CHECK(k >= 1);
  ++round_;
  suggested_ = suggested;
  Summarise();
  Evolve(ranker, k);
  std::vector<int> picks = Pick(k);
  if (static_cast<int>(picks.size()) < k) {
    // Little is left: look for it in lists rather than by chance.
    for (int i = 0; i < space_->size(); ++i) ListIfSmall(i);
    Evolve(ranker, k);
    picks = Pick(k);
  }
  std::vector<Candidate> round;
  for (int i : picks) round.push_back(Propose(i, ranker));
  return round;
}

SearchMemory TaskSearch::Impl::memory() const {
  SearchMemory memory;
  memory.rounds = static_cast<int64_t>(round_);
  for (const Sampled& sample : samples_)
    memory.samples.emplace_back(space_->space(sample.space).name(), sample.configuration);
  for (int i = 0; i < space_->size(); ++i) {
    if (states_[i].listed) memory.listed.push_back(space_->space(i).name());
    if (states_[i].large) memory.large.push_back(space_->space(i).name());
  }
  return memory;
}

void TaskSearch::Impl::Remember(const SearchMemory& memory) {
  SkipRounds(static_cast<uint64_t>(std::max<int64_t>(0, memory.rounds)));
  samples_.clear();
  for (const auto& [sketch, configuration] : memory.samples) {
    const int space = space_->Find(sketch);
    if (IsCandidate(*space_, space, configuration)) samples_.push_back({space, configuration});
  }
  for (const std::string& sketch : memory.large)
    if (const int space = space_->Find(sketch); space >= 0) states_[space].large = true;
  for (const std::string& sketch : memory.listed)
    if (const int space = space_->Find(sketch); space >= 0) ListIfSmall(space);
}

Candidate TaskSearch::Impl::Default() {
  population_.Clear();
  for (int i = 0; i < space_->size(); ++i)
    if (!space_->space(i).external()) Append(i, defaults_[i]);
  population_.Evaluate(0, nullptr, task_, 1);
  int best = 0;
  for (int i = 1; i < population_.size(); ++i)
    if (population_.score(i) > population_.score(best)) best = i;
  return Propose(best, nullptr);
}

TaskSearch::TaskSearch(const TaskSpace* space, uint64_t task, EvolutionOptions options)
    : impl_(std::make_unique<Impl>(space, task, options)) {}
TaskSearch::~TaskSearch() = default;
std::vector<Candidate> TaskSearch::NextRound(const Ranker* ranker, int k, const std::vector<Suggestion>& suggested) {
  return impl_->NextRound(ranker, k, suggested);
}
Candidate TaskSearch::Default() { return impl_->Default(); }
void TaskSearch::AddMeasured(int space, absl::Span<const int32_t> configuration, double seconds) {
  impl_->AddMeasured(space, configuration, seconds);
}
void TaskSearch::AddKnown(uint64_t hash) { impl_->AddKnown(hash); }
void TaskSearch::AddProposed(int space, uint64_t hash) { impl_->AddProposed(space, hash); }
SearchMemory TaskSearch::memory() const { return impl_->memory(); }
void TaskSearch::Remember(const SearchMemory& memory) { impl_->Remember(memory); }
void TaskSearch::Release(uint64_t hash) { impl_->Release(hash); }
int64_t TaskSearch::rounds() const { return static_cast<int64_t>(impl_->rounds()); }
void TaskSearch::SkipRounds(int64_t until) { impl_->SkipRounds(static_cast<uint64_t>(until)); }
bool TaskSearch::known(uint64_t hash) const { return impl_->known(hash); }
const SearchStats& TaskSearch::stats() const { return impl_->stats(); }

}  // namespace diapason
