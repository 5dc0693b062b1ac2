// Groups that reduce the rows of a tensor (row_nodes.h): chains of reductions over the same rows, such as a decomposed
// normalization, and a reduced row in the product that reads it. For compiler/graph alone; not thread-safe.
#pragma once

#include <map>
#include <set>

#include "compiler/graph/grouping/group_table.h"
#include "compiler/graph/network.h"
#include "compiler/graph/row_nodes.h"

namespace diapason {

class RowFusion {
 public:
  // `table` is to outlive it.
  explicit RowFusion(GroupTable* table) : table_(*table) {}

  // Looks at a group that has just been opened for one node: whether the node reduces rows.
  void Opened(int group);
  // Forgets a group that became part of another one.
  void Forget(int group) { rows_.erase(group); }

  // The rows that the anchor of a group reduces; null if it reduces none.
  const Rows* RowsOf(int group) const;
  // Whether a group goes on row by row behind its anchor.
  bool IsChain(int group) const { return chains_.contains(group); }

  // x - mean(x) and the like: the nodes that go on row by row behind a group that reduces rows, up to the node in which
  // all paths from its result meet, join the group if some of them reduce rows or change the shape. Returns whether
  // they did; `node` is the first of them.
  bool JoinChain(const Node& node);

  // Moves groups that reduce one row (a normalization of one token) into the product that alone reads the row, where
  // that was chosen or the product belongs to an attention that was taken apart, and records the choice points. Each
  // block of the product's kernel then computes the row again.
  void JoinProducts();

 private:
  int ProductOfRow(int group) const;

  GroupTable& table_;
  std::map<int, Rows> rows_;  // by group
  std::set<int> chains_;      // groups
};

}  // namespace diapason
