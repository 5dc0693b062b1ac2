#include "compiler/graph/grouping_changes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace diapason {
namespace {

// Groups of a change that have nodes in common, or write parts of what one of them is, directly or through others.
class Components {
 public:
  Components(const std::vector<Group>& groups, const std::vector<int>& producer) {
    for (const Group& group : groups) {
      const std::vector<int> nodes = NodesOf(group);
      for (int n : nodes) parent_[Find(n)] = Find(nodes[0]);
      if (group.output >= 0 && producer[group.output] >= 0) parent_[Find(producer[group.output])] = Find(nodes[0]);
    }
  }
  bool Has(int node) const { return parent_.count(node) > 0; }
  int Find(int node) {
    int root = parent_.emplace(node, node).first->second;
    while (parent_.at(root) != root) root = parent_.at(root);
    return parent_[node] = root;
  }

 private:
  std::map<int, int> parent_;
};

}  // namespace

std::vector<Group> Without(const std::vector<Group>& all, const GroupSet& less) {
  std::vector<Group> left;
  std::copy_if(all.begin(), all.end(), std::back_inserter(left),
               [&](const Group& group) { return less.count(group) == 0; });
  return left;
}

GroupSet SetOf(const std::vector<Group>& groups) { return GroupSet(groups.begin(), groups.end()); }

std::vector<int> NodesOf(const Group& group) {
  std::vector<int> nodes = group.nodes.empty() ? std::vector<int>{group.order} : group.nodes;
  if (group.follower >= 0) nodes.push_back(group.follower);
  return nodes;
}

GroupChanges::GroupChanges(const GroupingFacts& facts, FusionModes modes)
    : facts_(facts), modes_(std::move(modes)), base_(GroupNodes(facts, modes_)), base_set_(SetOf(base_.groups)) {}

GroupChange GroupChanges::Of(const FusionModes& more) {
  ++groupings_;
  FusionModes all = modes_;
  for (const auto& [node, mode] : more) all[node] = mode;
  const Grouping other = GroupNodes(facts_, all);
  return {Without(base_.groups, SetOf(other.groups)), Without(other.groups, base_set_)};
}

std::optional<std::vector<GroupChange>> GroupChanges::OfEachAtOnce(const std::vector<FusionModes>& choices) {
  FusionModes modes;
  for (const FusionModes& choice : choices)
    for (const auto& one : choice)
      if (!modes.insert(one).second) return std::nullopt;
  const GroupChange all = Of(modes);
  std::vector<Group> changed = all.removed;
  changed.insert(changed.end(), all.added.begin(), all.added.end());
  Components components(changed, facts_.producer);
  std::map<int, GroupChange*> owner;  // by component
  std::vector<GroupChange> changes(choices.size());
  for (size_t c = 0; c < choices.size(); ++c)
    for (const auto& [node, mode] : choices[c])
      if (components.Has(node) && owner.emplace(components.Find(node), &changes[c]).first->second != &changes[c])
        return std::nullopt;
  for (const auto& [from, to] :
       {std::pair(&all.removed, &GroupChange::removed), std::pair(&all.added, &GroupChange::added)}) {
    for (const Group& group : *from) {
      const auto it = owner.find(components.Find(NodesOf(group)[0]));
      if (it == owner.end()) return std::nullopt;
      (it->second->*to).push_back(group);
    }
  }
  return changes;
}

std::vector<GroupChange> GroupChanges::OfEach(const std::vector<FusionModes>& choices) {
  if (choices.size() > 1)
    if (std::optional<std::vector<GroupChange>> found = OfEachAtOnce(choices)) return *std::move(found);
  std::vector<GroupChange> changes;
  for (const FusionModes& choice : choices) changes.push_back(Of(choice));
  return changes;
}

}  // namespace diapason
