#include "scheduler/search/breeding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scheduler/candidate.h"
#include "scheduler/parallel.h"
#include "scheduler/variation.h"

namespace diapason {
namespace {

// Mutants are of one of so many best measured candidates, or of the best of one space.
constexpr uint32_t kParents = 8;
// Tries to find a mutant that was not proposed before.
constexpr int kAttempts = 8;

// One of the best of a space that is drawn by how near its best comes to the best of the task, with what is still to
// come of it: one half as fast has a sixteenth of the chances. REQUIRES: something ran.
const MeasuredCandidate& ParentElsewhere(const SearchRound& round, const Ranking& ranking, const Proposals& proposals,
                                         Random* random) {
  const auto chances = [&](int i) {
    const SpaceResults& space = ranking.space(i);
    return space.best.empty()
               ? 0.0
               : std::pow(ranking.best_seconds() / space.best_seconds * std::exp(StillToCome(proposals.trials(i))), 4);
  };
  double sum = 0;
  for (int i = 0; i < round.spaces.size(); ++i) sum += chances(i);
  double left = random->Uniform() * sum;
  const SpaceResults* drawn = nullptr;
  for (int i = 0; i < round.spaces.size(); ++i) {
    if (ranking.space(i).best.empty()) continue;
    drawn = &ranking.space(i);
    if ((left -= chances(i)) < 0) break;
  }
  return *drawn->best[random->Below(static_cast<uint32_t>(drawn->best.size()))];
}

}  // namespace

SearchStats AddChildren(const SearchRound& round, int generation, Population* population) {
  const EvolutionOptions& options = round.options;
  const int parents = population->size();
  std::vector<double> cumulative(parents);
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int i = 0; i < parents; ++i) best = std::max(best, population->score(i));
  if (!std::isfinite(best)) return {};
  // Scores are logarithms of speed: a candidate half as fast as the best one has a quarter of its chances.
  for (int i = 0; i < parents; ++i) cumulative[i] = sum += std::exp(2 * (population->score(i) - best));
  const auto draw = [&](Random* random) {
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), random->Uniform() * sum);
    return std::min(parents - 1, static_cast<int>(found - cumulative.begin()));
  };
  const int base = population->size(), count = options.population;
  population->Extend(count);
  ParallelFor(options.threads, (count + kSearchChunk - 1) / kSearchChunk, [&](int chunk) {
    std::vector<int32_t> values, child;
    for (int i = chunk * kSearchChunk; i < std::min(count, (chunk + 1) * kSearchChunk); ++i) {
      Random random = round.Stream(static_cast<uint64_t>(generation), i);
      const int parent = draw(&random);
      const Space& space = round.spaces.space(population->space(parent));
      child.assign(population->configuration(parent).begin(), population->configuration(parent).end());
      const int other = draw(&random);
      if (random.Uniform() >= options.mutation && population->space(other) == population->space(parent) &&
          other != parent)
        Crossover(space, &random, population->configuration(other), absl::MakeSpan(child));
      else if (!Mutate(space, &random, absl::MakeSpan(child), &values))
        continue;
      population->Set(base + i, population->space(parent), child);
    }
  });
  return round.Evaluate(base, count, population);
}

SearchStats AddMutants(const SearchRound& round, int count, const Ranking& ranking, const Proposals& proposals,
                       Population* population) {
  const int first = population->size();
  const std::vector<const MeasuredCandidate*>& fastest = ranking.fastest();
  if (fastest.empty()) return {};
  Random random = round.Stream(0, uint64_t{1} << 41);
  population->Extend(count);
  std::vector<int32_t> values, child;
  const auto parents = std::min(kParents, static_cast<uint32_t>(fastest.size()));
  for (int i = 0; i < count; ++i) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const MeasuredCandidate& parent =
          i % 2 == 1 ? ParentElsewhere(round, ranking, proposals, &random) : *fastest[random.Below(parents)];
      const Space& space = round.spaces.space(parent.space);
      child = parent.configuration;
      for (uint32_t changes = 1 + random.Below(2); changes > 0; --changes)
        Mutate(space, &random, absl::MakeSpan(child), &values);
      if (proposals.contains(CandidateHash(space.name(), child))) continue;
      population->Set(first + i, parent.space, child);
      break;
    }
  }
  return round.Evaluate(first, count, population);
}

}  // namespace diapason
