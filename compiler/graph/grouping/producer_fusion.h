// Groups without an anchor that are computed inside the kernel that reads their result (element-wise operators, pads
// and transpositions in front of a convolution). For compiler/graph alone; not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/grouping/attention_fusion.h"
#include "compiler/graph/grouping/group_table.h"
#include "compiler/graph/grouping/row_fusion.h"

namespace diapason {

// Whether an element-wise operator or a move costs nothing to compute again at each place where it is read.
bool IsCheapToRepeat(const std::string& op);

class ProducerFusion {
 public:
  // All are to outlive it.
  ProducerFusion(GroupTable* table, const RowFusion* rows, const AttentionFusion* attention)
      : table_(*table), rows_(*rows), attention_(*attention) {}

  // Moves every such group into the group of its reader where that costs little, and records a choice point where the
  // reader computes it several times. Called once, after all nodes have a group.
  void AbsorbAll();

 private:
  int ReaderOf(const Group& producer) const;
  std::vector<int> ViewsInFront(int* reader) const;
  bool ReadsOnce(int reader) const;
  bool MayAbsorb(const Group& producer, int reader) const;
  bool IsReadOnceByRows(const Group& producer, int reader) const;
  bool IsComputedAgainIn(const Group& producer, const Group& reader) const;

  GroupTable& table_;
  const RowFusion& rows_;
  const AttentionFusion& attention_;
};

}  // namespace diapason
