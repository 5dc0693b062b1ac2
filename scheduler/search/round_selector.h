// Which candidates of a population a round proposes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "scheduler/population.h"
#include "scheduler/search/proposals.h"
#include "scheduler/search/round.h"

namespace diapason {

// Where the candidates of a population are from: priors come first, then other candidates of the first generation, then
// their children, then mutants of what was measured.
struct PopulationOrigins {
  int end_priors = 0;
  int end_first_generation = 0;
  int begin_mutants = 0;
  absl::flat_hash_set<uint64_t> suggested;  // hashes, wherever they are
};

// Selects by turns: priors and suggestions, the claims of spaces that were hardly measured, mutants, the best by score,
// the most hopeful, random ones. Used once.
class RoundSelector {
 public:
  // All of these must outlive this.
  RoundSelector(const SearchRound& round, const Population& population, const PopulationOrigins& origins,
                const Proposals& proposals);

  // Up to `count` candidates of the population that are legal and were never proposed, each once, in the order of
  // proposal; fewer only when there are no more.
  std::vector<int> Select(int count);

 private:
  void Take(int i);
  bool IsTaken(int i) const { return taken_.contains(i); }
  // Whether candidate a goes before b.
  bool Better(int a, int b) const;
  // Up to `count` of the candidates, sorted.
  std::vector<int> BestFirst(std::vector<int> candidates, size_t count) const;
  // Whether there are several near-identical ones among those taken.
  bool IsCrowded(int i) const;

  // Each takes candidates until so many places are filled altogether, or none is left for it.

  // Before the model has a say.
  void TakePriors(size_t places);
  // What was found for similar tasks, in the order of the suggestions.
  void TakeSuggested(size_t places);
  // The best candidate of each space that was hardly measured, the best first.
  void TakeClaims(size_t places);
  void TakeMutants(size_t places);
  // The best by score, crowded ones last.
  void TakeBest(size_t places);
  // The best by score and what is still to come of their spaces: the model ranks within a space, and the space that
  // leads does not get all trials before others had as many as their distance is worth. (Optimism in the face of
  // uncertainty: Lai and Robbins 1985; UCB1, Auer et al. 2002.) Leaves crowded ones out.
  void TakeHopeful(size_t places);
  // Samples drawn at random, without hopelessly slow ones.
  void TakeRandom(size_t places);

  const SearchRound& round_;
  const Population& population_;
  const PopulationOrigins& origins_;
  const Proposals& proposals_;
  std::vector<int> open_;  // what may be proposed
  std::vector<int> taken_in_order_;
  absl::flat_hash_set<int> taken_;
};

}  // namespace diapason
