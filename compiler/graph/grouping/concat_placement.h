// Concatenations in place: the kernels that make the parts of a concatenation write them into its result. For
// compiler/graph alone; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/graph/grouping/group_table.h"
#include "compiler/tensor/output_place.h"

namespace diapason {

class ConcatPlacement {
 public:
  // `table` is to outlive it.
  explicit ConcatPlacement(GroupTable* table) : table_(*table) {}

  // Where concatenation `n` can be in place, records a choice point, and puts it in place if that was chosen. At most
  // one part may need a kernel that copies it. Returns whether it is in place; if not, it needs a kernel.
  bool PutInPlace(int n);

  // Tells the groups which parts they write, and adds those that copy parts. Called once, after all nodes are grouped.
  void AssignOutputs() const;

 private:
  // A part of a concatenation.
  struct Part {
    int tensor;   // owns its memory
    bool copied;  // by a kernel of its own; else the kernel that makes it writes it there
    OutputPlace place;
  };

  bool IsReadOnlyBy(int tensor, int reader) const;
  std::vector<Part> PartsOf(int n) const;
  bool AddNested(const std::vector<Part>& nested, const OutputPlace& outer, int64_t elements,
                 std::vector<Part>* parts) const;
  void EraseNested(int from, const std::vector<Part>& parts);

  GroupTable& table_;
  std::map<int, std::vector<Part>> in_place_;  // by concatenation
};

}  // namespace diapason
