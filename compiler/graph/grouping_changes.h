// What fusion modes other than those of a grouping change in it. A mode changes what is near its node, so that those
// that are apart are tried by one grouping: the effort for each would grow with the network. For compiler/graph alone.
#pragma once

#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "compiler/graph/grouping.h"

namespace diapason {

// An order of groups by all that they are equal by, most telling first.
struct GroupLess {
  static auto Key(const Group& g) {
    return std::tie(g.order, g.output, g.follower, g.copied, g.anchor, g.recurrence, g.place, g.nodes);
  }
  bool operator()(const Group& a, const Group& b) const { return Key(a) < Key(b); }
};
using GroupSet = std::set<Group, GroupLess>;
GroupSet SetOf(const std::vector<Group>& groups);
// Those of all that are not in `less`, in order.
std::vector<Group> Without(const std::vector<Group>& all, const GroupSet& less);

// The nodes that a group runs or stands for.
std::vector<int> NodesOf(const Group& group);

struct GroupChange {
  std::vector<Group> removed, added;
};

class GroupChanges {
 public:
  // `facts` is to outlive it.
  GroupChanges(const GroupingFacts& facts, FusionModes modes);

  // The grouping by the modes that it was made with.
  const Grouping& base() const { return base_; }
  // What further modes change, taken together.
  GroupChange Of(const FusionModes& more);
  // What each of several change alone, if that can be seen where all are taken at once: none meets what another one
  // changes. Nothing if it cannot.
  std::optional<std::vector<GroupChange>> OfEachAtOnce(const std::vector<FusionModes>& choices);
  // The same with as many groupings as it takes.
  std::vector<GroupChange> OfEach(const std::vector<FusionModes>& choices);
  // How often the network was grouped.
  int groupings() const { return groupings_; }

 private:
  const GroupingFacts& facts_;
  FusionModes modes_;
  Grouping base_;
  GroupSet base_set_;
  int groupings_ = 1;
};

}  // namespace diapason
