// Sums over runs of neighbouring elements of a tensor, and of their squares: what normalizations of its rows need to
// know, in a form that whoever makes a part of a row can tell of that part.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Adds a stage of shape [n / run, ..., 2] of float32 behind one of shape [..., n]: of each run its sum, and that of the
// squares. Rows are neighbours, so that threads that have a row each read neighbours. REQUIRES: `run` divides n.
int AddRunSums(DagBuilder& builder, int source, int64_t run);

struct RunSums {
  int source = -1;
  int64_t run = 1, runs = 1;  // elements of a run, runs of a row
};

// What a stage of a dag, or of a rewrite of it, is of that; nothing if it is something else. Runs are of the source as
// it lies in memory.
std::optional<RunSums> RunSumsOf(const Stage& stage, const std::function<const Stage&(int)>& stage_of);

// Adds a stage of shape [..., 2] behind the sums of runs: those of rows.
int AddRowTotals(DagBuilder& builder, int sums);
// Whether a stage has these of a tensor that is given.
bool IsRowTotals(const Stage& stage, const std::function<const Stage&(int)>& stage_of);

}  // namespace diapason
