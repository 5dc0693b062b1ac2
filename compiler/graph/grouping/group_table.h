// The groups of a network while GroupNodes (grouping.h) forms them: the nodes of each group, the tensors that are
// views, and the fusion options found so far. The rules beside this file decide what is grouped; this class keeps every
// node in at most one group and every group small enough. For compiler/graph alone; not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "compiler/graph/grouping.h"
#include "compiler/graph/network.h"
#include "compiler/tensor/output_place.h"

namespace diapason {

class GroupTable {
 public:
  // Both are to outlive it.
  GroupTable(const GroupingFacts& facts, const FusionModes& modes);

  const GroupingFacts& facts() const { return facts_; }
  const Network& network() const { return facts_.network; }

  // What the caller of GroupNodes has chosen for a node.
  FusionMode ModeOf(int node) const;
  // Records that `node` could be grouped in another mode.
  void AddOption(int node, FusionMode other) { options_.push_back({node, other}); }

  // The result of `node` needs no kernel: it has the memory of its first input.
  void AddView(int node);
  bool IsView(int tensor) const { return alias_of_.contains(tensor); }
  // The tensor that has a tensor's memory: itself, unless it is a view.
  int OwnerOf(int tensor) const;

  // The group of a node, or -1.
  int group_of(int node) const { return group_of_[node]; }
  const Group& group(int g) const { return groups_[g]; }
  int size() const { return static_cast<int>(groups_.size()); }
  // The group whose last node makes a tensor, or -1. Not that of a recurrence.
  int GroupThatEndsIn(int tensor) const;
  // The same if the network does not give out the tensor and all its readers fulfil `reads`.
  int GroupReadOnlyBy(int tensor, const std::function<bool(int)>& reads) const;
  // Whether one group may have all these nodes: not too many, and their expressions, inlined into each other, not too
  // large. The result of an anchor is not inlined.
  bool MayHold(std::vector<int> nodes, const std::vector<int>& more) const;

  // The nodes from the readers of a tensor to the first node in which all paths from the tensor meet, that one included
  // and last. Empty if there are more than `limit`, the network gives out one of the results between them, or one of
  // the nodes has a group or does not fulfil `may_join`.
  std::vector<int> NodesUpToMeeting(int tensor, size_t limit, const std::function<bool(int)>& may_join) const;

  // A new group of one node; its index.
  int Open(int node);
  // A new group of a whole recurrence, however large. It takes no more nodes, and no kernel computes it again.
  void OpenRecurrence(const std::vector<int>& nodes);
  // Appends nodes to a group. False, and nothing has changed, if there are none or the group may not hold them.
  bool Append(int group, const std::vector<int>& nodes);
  // A node that has sums of a tensor is computed with the group that ends in it; false if there is none.
  bool Follow(int tensor, int node);
  // Gives the nodes of group `from` to group `to`; `from` is empty then. REQUIRES: `to` may hold them.
  void MoveNodes(int from, int to);
  // The kernel of a group computes views, which are none then. REQUIRES: it may hold their nodes.
  void MoveViews(const std::vector<int>& nodes, int to);
  // A new group of two groups, which are empty then, and of `node`; its index. REQUIRES: it may hold them.
  int Merge(int first, int second, int node);

  // Nodes stay where they are from here on. The group writes its result into a part of tensor `output`.
  void PlaceOutput(int group, int output, const OutputPlace& place);
  // Adds a group that copies a tensor into a part of the result of `node`.
  void AddCopy(int tensor, int node, const OutputPlace& place);
  // All groups that are not empty, in order of execution. Leaves the table empty.
  Grouping Finish();

 private:
  const GroupingFacts& facts_;
  const FusionModes& modes_;
  std::vector<int> group_of_;  // by node
  std::vector<Group> groups_;
  std::map<int, int> alias_of_;  // by tensor
  std::vector<FusionOption> options_;
};

}  // namespace diapason
