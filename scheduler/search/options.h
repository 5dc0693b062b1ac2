// The options of the search of one task, and what it counts.
#pragma once

#include <cstdint>

namespace diapason {

struct EvolutionOptions {
  uint64_t seed = 0;
  int population = 2048;
  int iterations = 4;     // generations after the first
  double mutation = 0.8;  // share of children by mutation; the others by crossover
  double epsilon = 0.05;  // share of a round that is drawn at random
  // Share of a round that are changes of the best measured candidates which the model did not choose; three times as
  // many when the model expects nothing better than what was measured.
  double unguided = 0.15;
  // Share of what the model chooses for which a space counts the more the fewer measurements it has: as fast as it may
  // still become.
  double hopeful = 0.5;
  double measured_share = 0.2;  // of the first generation that are the best measured candidates
  int floor_measurements = 3;   // a space with fewer has a claim on a place in the round
  int threads = 1;              // the result does not depend on it
};

struct SearchStats {
  int64_t sampled = 0;    // candidates made by sampling, mutation and crossover
  int64_t evaluated = 0;  // of these, those that were new and so got legality, features and a score
};

}  // namespace diapason
