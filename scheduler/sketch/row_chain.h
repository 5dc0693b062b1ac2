// Rows: what layer, RMS, group and instance normalisation and softmax have in common. Several reductions over the same
// axes follow one another, with element-wise stages between them, and the result of each is needed by the elements of
// its own row alone:
//
//     top[i] = max over j of x[i, j]
//     sum[i] = sum over j of exp(x[i, j] - top[i])
//     y[i, j] = exp(x[i, j] - top[i]) / sum[i]
//
// So all stages can be computed row by row in one kernel (rules/row_reductions.cc), however many there are.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/sketch/draft.h"

namespace diapason {

struct RowChain {
  std::vector<int> row_axes;     // of the root, ascending: where each reduction's result is read
  std::vector<int> column_axes;  // the others; empty where the root has one element a row
  int64_t columns = 1;           // elements of a row
  std::vector<int> reductions;   // producers first
  std::vector<int> between;      // element-wise stages, consumers first
  std::vector<int> dear;         // of them, those that are expensive to compute and read by several stages
};

// The chain that ends in `root`, the dag's only output, which is element-wise. None unless no stage of the kernel is
// scheduled yet, all reductions are over rows of equal length and have exactly the same rows, and one kernel for each
// reduction would be more: a reduction is read along whole rows, or there are several.
std::optional<RowChain> FindRowChain(const Draft& draft, int root);

// Inputs that change from run to run, as long as the rows and read by several stages of the chain. REQUIRES: stages
// between that are computed in their readers are inlined.
std::vector<int> RowsReadAgain(const Draft& draft, const RowChain& chain);

// Whether a stage is computed from reductions, directly or through element-wise stages.
bool ReadsReductions(const Draft& draft, int stage);

}  // namespace diapason
