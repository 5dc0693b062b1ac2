#include "compiler/graph/grouping/group_table.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace diapason {
namespace {

// Expressions of a kernel are walked by recursion, and a stage that is read twice is inlined twice: x*x sixty times
// would be 2^60 products. Groups of real networks have some dozen nodes.
constexpr size_t kMaxGroupNodes = 128;
constexpr int64_t kMaxGroupTree = 1024;

}  // namespace

GroupTable::GroupTable(const GroupingFacts& facts, const FusionModes& modes)
    : facts_(facts), modes_(modes), group_of_(facts.network.nodes.size(), -1) {}

FusionMode GroupTable::ModeOf(int node) const {
  const auto it = modes_.find(node);
  return it == modes_.end() ? FusionMode::kDefault : it->second;
}

void GroupTable::AddView(int node) {
  alias_of_[network().nodes[node].output] = OwnerOf(network().nodes[node].inputs[0]);
}

int GroupTable::OwnerOf(int tensor) const {
  const auto it = alias_of_.find(tensor);
  return it == alias_of_.end() ? tensor : it->second;
}

int GroupTable::GroupThatEndsIn(int tensor) const {
  const int from = facts_.producer[tensor];
  const int group = from < 0 ? -1 : group_of_[from];
  return group < 0 || groups_[group].recurrence || groups_[group].nodes.back() != from ? -1 : group;
}

int GroupTable::GroupReadOnlyBy(int tensor, const std::function<bool(int)>& reads) const {
  const std::vector<int>& readers = facts_.consumers[tensor];
  if (network().is_output(tensor) || !std::all_of(readers.begin(), readers.end(), reads)) return -1;
  return GroupThatEndsIn(tensor);
}

bool GroupTable::MayHold(std::vector<int> nodes, const std::vector<int>& more) const {
  nodes.insert(nodes.end(), more.begin(), more.end());
  if (nodes.size() > kMaxGroupNodes) return false;
  std::sort(nodes.begin(), nodes.end());
  std::map<int, int64_t> size;  // of the expression of a tensor of the group
  for (int n : nodes) {
    int64_t sum = 1;
    for (int input : network().nodes[n].inputs) {
      const auto known = size.find(input);
      sum += known == size.end() ? 1 : known->second;
    }
    if (sum > kMaxGroupTree) return false;
    size[network().nodes[n].output] = facts_.IsAnchor(n) ? 1 : sum;
  }
  return true;
}

std::vector<int> GroupTable::NodesUpToMeeting(int tensor, size_t limit,
                                              const std::function<bool(int)>& may_join) const {
  const auto ends = [&](int t) { return facts_.consumers[t].size() > limit || network().is_output(t); };
  if (ends(tensor)) return {};
  std::set<int> open(facts_.consumers[tensor].begin(), facts_.consumers[tensor].end());  // readers to come, ascending
  std::vector<int> nodes;
  while (nodes.size() < limit && !open.empty()) {
    const int n = *open.begin();
    open.erase(open.begin());
    if (group_of_[n] >= 0 || !may_join(n)) return {};
    nodes.push_back(n);
    if (open.empty()) return nodes;
    const int result = network().nodes[n].output;
    if (ends(result)) return {};
    open.insert(facts_.consumers[result].begin(), facts_.consumers[result].end());
  }
  return {};
}

int GroupTable::Open(int node) {
  groups_.push_back({});
  groups_.back().nodes = {node};
  if (facts_.IsAnchor(node)) groups_.back().anchor = node;
  return group_of_[node] = size() - 1;
}

void GroupTable::OpenRecurrence(const std::vector<int>& nodes) {
  for (int n : nodes) group_of_[n] = size();
  groups_.push_back({});
  groups_.back().nodes = nodes;
  groups_.back().recurrence = true;
}

bool GroupTable::Append(int group, const std::vector<int>& nodes) {
  if (nodes.empty() || !MayHold(groups_[group].nodes, nodes)) return false;
  for (int n : nodes) group_of_[n] = group;
  groups_[group].nodes.insert(groups_[group].nodes.end(), nodes.begin(), nodes.end());
  return true;
}

bool GroupTable::Follow(int tensor, int node) {
  const int group = GroupThatEndsIn(tensor);
  if (group < 0 || groups_[group].follower >= 0) return false;
  group_of_[node] = group;
  groups_[group].follower = node;
  return true;
}

void GroupTable::MoveNodes(int from, int to) {
  std::vector<int>& into = groups_[to].nodes;
  for (int n : groups_[from].nodes) group_of_[n] = to;
  into.insert(into.end(), groups_[from].nodes.begin(), groups_[from].nodes.end());
  std::sort(into.begin(), into.end());
  groups_[from].nodes.clear();
}

void GroupTable::MoveViews(const std::vector<int>& nodes, int to) {
  std::vector<int>& into = groups_[to].nodes;
  for (int n : nodes) {
    alias_of_.erase(network().nodes[n].output);
    group_of_[n] = to;
  }
  into.insert(into.end(), nodes.begin(), nodes.end());
  std::sort(into.begin(), into.end());
}

int GroupTable::Merge(int first, int second, int node) {
  const int merged = Open(node);
  MoveNodes(first, merged);
  MoveNodes(second, merged);
  return merged;
}

void GroupTable::PlaceOutput(int group, int output, const OutputPlace& place) {
  groups_[group].output = output;
  groups_[group].place = place;
}

void GroupTable::AddCopy(int tensor, int node, const OutputPlace& place) {
  Group copy;
  copy.copied = tensor;
  copy.order = node;
  copy.output = network().nodes[node].output;
  copy.place = place;
  groups_.push_back(std::move(copy));
}

Grouping GroupTable::Finish() {
  Grouping result;
  for (Group& group : groups_) {
    if (!group.nodes.empty()) {
      group.order = group.nodes.back();
      if (group.output < 0) group.output = network().nodes[group.order].output;
    }
    if (group.output >= 0) result.groups.push_back(std::move(group));
  }
  std::stable_sort(result.groups.begin(), result.groups.end(),
                   [](const Group& a, const Group& b) { return a.order < b.order; });
  result.alias_of = std::move(alias_of_);
  result.options = std::move(options_);
  groups_.clear();
  group_of_.assign(group_of_.size(), -1);
  return result;
}

}  // namespace diapason
