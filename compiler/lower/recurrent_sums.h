// The sums of a recurrence's steps (recurrent_kernel.h), and the weights that they keep on chip.
#pragma once

#include <map>
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
  // Weights that stay on chip.
  struct Kept {
    Expr load;
    int buffer = -1;
    int64_t stride = 0;  // shared: between columns
  };

  int64_t TermsOfLane(const Stage& stage) const;
  // Term number `round` of the lane.
  Expr Term(const Expr& round) const;
  Expr WeightIndex(const Kept& kept, const Stage& stage, int64_t group, const Expr& round) const;
  Stmt Keep(const Kept& kept, const Stage& stage);
  Expr WithKeptWeights(size_t i, int64_t group, const Expr& round) const;
  // Where a sum is while it grows: on cpu, where a thread has many units, apart for one vector of them.
  Expr SumIndex(const Stage& stage, RowAndGroup at) const;
  Stmt MeetInWarp(const Stage& stage, int sums);
  Stmt MeetInMemory(const Stage& stage, int sums);

  RecurrentNest& nest_;
  std::map<int, std::vector<Kept>> kept_;  // by stage
};

}  // namespace diapason
