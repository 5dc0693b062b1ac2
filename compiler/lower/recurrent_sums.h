// The sums of a recurrence's steps (recurrent_kernel.h), and the weights that they keep on chip.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compiler/lower/recurrent_nest.h"

namespace diapason {

class RecurrentSums {
 public:
  explicit RecurrentSums(RecurrentNest* nest) : nest_(*nest) {}

  // Copies the weights to where they stay, each thread those that it multiplies. Once, before Emit; null where they
  // stay in memory.
  Stmt KeepWeights();
  // Stage number `i` of the body, a sum, of the thread's units. All lanes that share it have the same bits.
  Stmt Emit(size_t i);

 private:
  // Terms of each lane, one behind the other, whose weights are in one place.
  struct Run {
    int64_t first = 0, terms = 0;  // of a lane
    WeightsIn in = WeightsIn::kGlobal;
    bool registers() const { return in == WeightsIn::kRegisters; }
  };
  // Weights of a run that stay on chip.
  struct Kept {
    Expr load;
    int buffer = -1;
    int64_t groups = 1;
    int64_t stride = 0;  // shared: between columns
  };

  int64_t TermsOfLane(const Stage& stage) const;
  std::vector<Run> RunsOf(const Stage& stage) const;
  // Term number `round` of the lane.
  Expr Term(const Expr& round) const;
  Expr WeightIndex(const Kept& kept, const Run& run, int64_t group, const Expr& round) const;
  Stmt Keep(const Kept& kept, const Run& run, const Stage& stage);
  Expr WithKeptWeights(size_t i, const Run& run, int64_t group, const Expr& round) const;
  Stmt AddTerms(size_t i, const Run& run, int sums);
  // Where a sum is while it grows: on cpu, where a thread has many units, apart for one vector of them.
  Expr SumIndex(const Stage& stage, RowAndGroup at) const;
  Stmt MeetInWarp(const Stage& stage, int sums);
  Stmt MeetInMemory(const Stage& stage, int sums);

  RecurrentNest& nest_;
  std::map<std::pair<int, int64_t>, std::vector<Kept>> kept_;  // by stage and first term of the run
};

}  // namespace diapason
