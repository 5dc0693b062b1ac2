#include "scheduler/evolution.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "scheduler/population.h"
#include "scheduler/search/breeding.h"
#include "scheduler/search/proposals.h"
#include "scheduler/search/ranking.h"
#include "scheduler/search/round.h"
#include "scheduler/search/round_selector.h"
#include "scheduler/search/space_sampler.h"

namespace diapason {
namespace {

// Priors of all spaces in turns: the first of each space before the second of any.
std::vector<Suggestion> PriorsOf(const TaskSpace& spaces) {
  std::vector<std::vector<std::vector<int32_t>>> of_space;
  size_t most = 0;
  for (int i = 0; i < spaces.size(); ++i) {
    of_space.push_back(spaces.space(i).Priors());
    most = std::max(most, of_space.back().size());
  }
  std::vector<Suggestion> priors;
  for (size_t turn = 0; turn < most; ++turn)
    for (int i = 0; i < spaces.size(); ++i)
      if (turn < of_space[i].size()) priors.push_back({i, std::move(of_space[i][turn])});
  return priors;
}

}  // namespace

class TaskSearch::Impl {
 public:
  Impl(const TaskSpace* spaces, uint64_t task, EvolutionOptions options)
      : spaces_(*spaces),
        task_(task),
        options_(options),
        priors_(PriorsOf(*spaces)),
        proposals_(spaces->size()),
        ranking_(spaces->size()),
        sampler_(spaces, options.population),
        population_(spaces) {
    // A space may search a little for its default: asked once.
    for (int i = 0; i < spaces->size(); ++i) defaults_.push_back(spaces->space(i).Default());
  }

  std::vector<Candidate> NextRound(const Ranker* ranker, int k, const std::vector<Suggestion>& suggested);
  Candidate Default();

  void AddMeasured(int space, absl::Span<const int32_t> configuration, double seconds) {
    const uint64_t hash = CandidateHash(spaces_.space(space).name(), configuration);
    proposals_.AddMeasured(space, hash);
    ranking_.Add({space, {configuration.begin(), configuration.end()}, seconds, hash});
  }
  SearchMemory memory() const {
    SearchMemory memory;
    memory.rounds = static_cast<int64_t>(round_);
    sampler_.Save(&memory);
    return memory;
  }
  void Remember(const SearchMemory& memory) {
    SkipRounds(static_cast<uint64_t>(std::max<int64_t>(0, memory.rounds)));
    sampler_.Restore(memory);
  }
  uint64_t rounds() const { return round_; }
  void SkipRounds(uint64_t until) { round_ = std::max(round_, until); }
  Proposals& proposals() { return proposals_; }
  const SearchStats& stats() const { return stats_; }

 private:
  std::vector<int> EvolveAndSelect(const SearchRound& round, int k, const std::vector<Suggestion>& suggested);
  PopulationOrigins StartPopulation(const SearchRound& round, const std::vector<Suggestion>& suggested);
  bool ExpectsImprovement(const Ranker* ranker) const;
  Candidate Propose(int i, const Ranker* ranker);

  const TaskSpace& spaces_;
  const uint64_t task_;
  const EvolutionOptions options_;
  std::vector<std::vector<int32_t>> defaults_;  // of each space
  const std::vector<Suggestion> priors_;        // to be measured in any case, in that order
  Proposals proposals_;
  Ranking ranking_;
  SpaceSampler sampler_;
  uint64_t round_ = 0;
  Population population_;  // of the last round
  SearchStats stats_;
};

// The first generation: priors, what is suggested, defaults, the best measured ones, all of the small spaces, samples
// of the others. Most samples are those of the rounds before.
PopulationOrigins TaskSearch::Impl::StartPopulation(const SearchRound& round,
                                                    const std::vector<Suggestion>& suggested) {
  PopulationOrigins origins;
  population_.Clear();
  for (const Suggestion& one : priors_)
    if (!proposals_.contains(CandidateHash(spaces_.space(one.space).name(), one.configuration)))
      population_.Append(one.space, one.configuration);
  origins.end_priors = population_.size();
  for (const Suggestion& one : suggested) {
    origins.suggested.insert(CandidateHash(spaces_.space(one.space).name(), one.configuration));
    population_.Append(one.space, one.configuration);
  }
  for (int i = 0; i < spaces_.size(); ++i) population_.Append(i, defaults_[i]);
  const auto seeds =
      std::min(ranking_.fastest().size(), static_cast<size_t>(options_.population * options_.measured_share));
  for (size_t i = 0; i < seeds; ++i)
    population_.Append(ranking_.fastest()[i]->space, ranking_.fastest()[i]->configuration);
  sampler_.AddKept(&population_);
  round.Evaluate(0, 0, &population_);
  stats_ += sampler_.AddSamples(round, ranking_.SampleShares(), &population_);
  origins.end_first_generation = population_.size();
  return origins;
}

// Whether the model expects more of a candidate that was not proposed than of what was measured.
bool TaskSearch::Impl::ExpectsImprovement(const Ranker* ranker) const {
  if (ranker == nullptr) return true;
  for (int i = 0; i < population_.size(); ++i)
    if (population_.score(i) > 0 && !proposals_.contains(population_.hash(i))) return true;
  return false;
}

std::vector<int> TaskSearch::Impl::EvolveAndSelect(const SearchRound& round, int k,
                                                   const std::vector<Suggestion>& suggested) {
  PopulationOrigins origins = StartPopulation(round, suggested);
  for (int generation = 1; generation <= options_.iterations; ++generation)
    stats_ += AddChildren(round, generation, &population_);
  const double share = (ExpectsImprovement(round.ranker) ? 1 : 3) * options_.unguided;
  const int mutants = std::min(k, static_cast<int>(std::ceil(share * k - 0.5)));
  origins.begin_mutants = population_.size();
  stats_ += AddMutants(round, mutants, ranking_, proposals_, &population_);
  return RoundSelector(round, population_, origins, proposals_).Select(k);
}

std::vector<Candidate> TaskSearch::Impl::NextRound(const Ranker* ranker, int k,
                                                   const std::vector<Suggestion>& suggested) {
  DIAPASON_CHECK(k >= 1);
  ranking_.Update();
  const SearchRound round{spaces_, options_, task_, ++round_, ranker};
  std::vector<int> selected = EvolveAndSelect(round, k, suggested);
  if (static_cast<int>(selected.size()) < k) {
    // Little is left: look for it in lists rather than by chance.
    sampler_.ListSmall();
    selected = EvolveAndSelect(round, k, suggested);
  }
  std::vector<Candidate> candidates;
  for (int i : selected) candidates.push_back(Propose(i, ranker));
  return candidates;
}

Candidate TaskSearch::Impl::Propose(int i, const Ranker* ranker) {
  Candidate candidate{population_.space(i),
                      {population_.configuration(i).begin(), population_.configuration(i).end()},
                      population_.hash(i),
                      population_.analytic_seconds(i),
                      population_.analytic_seconds(i)};
  if (ranker != nullptr && ranking_.best_seconds() > 0)
    candidate.predicted_seconds = ranking_.best_seconds() * std::exp(-population_.score(i));
  proposals_.AddProposed(candidate.space, candidate.hash);
  return candidate;
}

Candidate TaskSearch::Impl::Default() {
  population_.Clear();
  for (int i = 0; i < spaces_.size(); ++i)
    if (!spaces_.space(i).external()) population_.Append(i, defaults_[i]);
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
void TaskSearch::AddKnown(uint64_t hash) { impl_->proposals().AddKnown(hash); }
void TaskSearch::AddProposed(int space, uint64_t hash) { impl_->proposals().AddProposed(space, hash); }
SearchMemory TaskSearch::memory() const { return impl_->memory(); }
void TaskSearch::Remember(const SearchMemory& memory) { impl_->Remember(memory); }
void TaskSearch::Release(uint64_t hash) { impl_->proposals().Release(hash); }
int64_t TaskSearch::rounds() const { return static_cast<int64_t>(impl_->rounds()); }
void TaskSearch::SkipRounds(int64_t until) { impl_->SkipRounds(static_cast<uint64_t>(until)); }
bool TaskSearch::known(uint64_t hash) const { return impl_->proposals().contains(hash); }
const SearchStats& TaskSearch::stats() const { return impl_->stats(); }

}  // namespace diapason
