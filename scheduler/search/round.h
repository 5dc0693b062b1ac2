// One round of a search: what everything that adds candidates to its population works with.
#pragma once

#include <cstdint>

#include "costmodel/cost_model.h"
#include "scheduler/population.h"
#include "scheduler/random.h"
#include "scheduler/search/options.h"
#include "scheduler/space.h"

namespace diapason {

// Slots of a population that one thread fills at a time.
inline constexpr int kSearchChunk = 128;

// The same in every part of the round. What it refers to outlives it.
struct SearchRound {
  const TaskSpace& spaces;
  const EvolutionOptions& options;
  uint64_t task = 0;               // what the cost model knows the task by
  uint64_t number = 0;             // of the round, from 1
  const Ranker* ranker = nullptr;  // null: the analytic estimate ranks

  // Random numbers of one slot of one generation (0: the first), so that threads make no difference.
  Random Stream(uint64_t generation, uint64_t slot) const {
    return Random(options.seed, task, (number << 8) + generation, slot);
  }
  // Evaluates the population's slots from `first` on, and counts them; `added` is how many were extended.
  SearchStats Evaluate(int first, int added, Population* population) const {
    population->Evaluate(first, ranker, task, options.threads);
    return {added, population->size() - first};
  }
};

inline SearchStats& operator+=(SearchStats& sum, const SearchStats& more) {
  sum.sampled += more.sampled;
  sum.evaluated += more.evaluated;
  return sum;
}

}  // namespace diapason
