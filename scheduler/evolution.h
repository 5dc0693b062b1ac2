// The search of one task: which candidates of its spaces to measure next.
//
// Ansor's evolutionary search (OSDI 2020, section 5.1) on configurations: each round samples all spaces, joins the
// best measured candidates, evolves by mutation and crossover under the model's score, and proposes the best that were
// not measured, with a share of random ones and of neighbours of the best that the model has no say in. Differences:
// crossover; every space is kept alive until it has been measured a few times, and gets a share by its best afterwards,
// the larger the fewer its measurements; no more than a few near-identical candidates a round; a space that is small is
// enumerated, so that the search of a tiny task ends.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "costmodel/cost_model.h"
#include "db/rounds.h"
#include "scheduler/candidate.h"
#include "scheduler/search/options.h"
#include "scheduler/space.h"
#include "scheduler/warm_start.h"

namespace diapason {

// Proposes candidates; learns of their results. Not safe from several threads. The same calls with the same arguments
// give the same proposals, whatever the order in which AddMeasured was called between two rounds.
class TaskSearch {
 public:
  // `space` must outlive this. `task` is what the cost model knows the task by.
  TaskSearch(const TaskSpace* space, uint64_t task, EvolutionOptions options);
  ~TaskSearch();

  // Up to k candidates never proposed or measured before, the most promising first. Fewer when the spaces are
  // exhausted; none when nothing is left. Without a ranker the analytic estimate ranks. What is suggested and legal is
  // in the round whatever the ranker thinks of it, up to half of the round, and bred from. REQUIRES: k >= 1.
  std::vector<Candidate> NextRound(const Ranker* ranker, int k, const std::vector<Suggestion>& suggested = {});

  // The candidate to measure first: the best of the spaces' defaults by the analytic estimate (as DefaultSchedule).
  // From then on it counts as proposed.
  Candidate Default();

  // A candidate's median, or 0 when it fails. Once more for the same one: replaces it (a fast one that proved wrong).
  void AddMeasured(int space, absl::Span<const int32_t> configuration, double seconds);
  // Never proposes the candidate of that hash (measured in a space that no longer exists).
  void AddKnown(uint64_t hash);
  // A search before this one has proposed it.
  void AddProposed(int space, uint64_t hash);
  // May be proposed again: its measurement was lost.
  void Release(uint64_t hash);

  // Rounds so far, and those that a search before this one had: their numbers are part of the random seed.
  int64_t rounds() const;
  void SkipRounds(int64_t until);
  // What another search of the same task with the same proposals and measurements continues from as this one
  // does. Only rounds, samples, listed and large are used; what the spaces do not have is left out.
  SearchMemory memory() const;
  void Remember(const SearchMemory& memory);

  bool known(uint64_t hash) const;
  const SearchStats& stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
