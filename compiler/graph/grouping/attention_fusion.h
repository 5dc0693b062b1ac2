// Attention in one group: a product, a softmax along its rows, and the product by the softmax's result. For
// compiler/graph alone; not thread-safe.
#pragma once

#include <set>

#include "compiler/graph/grouping/group_table.h"
#include "compiler/graph/grouping/row_fusion.h"

namespace diapason {

class AttentionFusion {
 public:
  // Both are to outlive it.
  AttentionFusion(GroupTable* table, RowFusion* rows) : table_(*table), rows_(*rows) {}

  // Where `n` is the second product of an attention, records a choice point, and merges the groups of the first product
  // and of the softmax with it unless kApart was chosen. Returns whether they were merged.
  bool Join(int n);
  // Puts a transposition of an attention's result into its group: the kernel writes it in that order. Returns whether
  // `n` is one and joined.
  bool JoinTransposition(int n);

  bool IsAttention(int group) const { return attentions_.contains(group); }

 private:
  int SoftmaxReadBy(int n) const;
  int ScoresReadBy(int softmax) const;

  GroupTable& table_;
  RowFusion& rows_;
  std::set<int> attentions_;  // groups
};

}  // namespace diapason
