// Element-wise nodes in the group of the node whose result they read. For compiler/graph alone; not thread-safe.
#pragma once

#include "compiler/graph/grouping/group_table.h"
#include "compiler/graph/network.h"

namespace diapason {

class EpilogueFusion {
 public:
  // `table` is to outlive it.
  explicit EpilogueFusion(GroupTable* table) : table_(*table) {}

  // Puts element-wise node `n` into a group whose result it alone reads, in the same shape, and records the choice
  // points of a residual addition. Of several groups it takes the one whose anchor is deepest in the network, so that a
  // residual addition joins the main path and not its shortcut. Returns false if there is none, the choice is kApart or
  // kInReader, or the group may not hold it.
  bool Join(int n);

  // x * sigmoid(x) and the like: where all paths from a group's result meet in one element-wise node and run through
  // element-wise nodes of the same shape only, all of these join the group. Returns whether they did; `node` is the
  // first of them.
  bool JoinDiamond(const Node& node);

 private:
  bool IsReadByRows(int n) const;
  int GroupFor(int n);

  GroupTable& table_;
};

}  // namespace diapason
