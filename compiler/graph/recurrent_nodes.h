// The nodes of recurrences that were unrolled (LSTM, GRU and RNN layers), which one kernel may compute: its steps are
// alike, and each reads what the one before it computed.
#pragma once

#include <cstdint>
#include <vector>

namespace diapason {

struct GroupingFacts;

// One direction of one layer.
struct RecurrentNodes {
  // Ascending. Only the result of the last one is read outside: the outputs of all steps, joined, or that of the last
  // step.
  std::vector<int> nodes;
  int64_t weight_bytes = 0;  // of the constants by which it multiplies in each step
};

// In order of their last nodes; they have no node in common. Products of matrices by the same constant, each of which
// depends on the one before it, tell where one may be; it is one if FindRecurrence (compiler/tensor/recurrence.h)
// accepts its dag. Those of more than 512 steps with a product are left out. The effort grows with the number of nodes
// alone. `facts.recurrences` is not read.
std::vector<RecurrentNodes> FindRecurrentNodes(const GroupingFacts& facts);

}  // namespace diapason
